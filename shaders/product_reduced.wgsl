// One output per workgroup, its terms shared by ${LANES} lanes and added up in a fixed tree:
// for few outputs of many terms each.
let batch = group.z;
let flat = group.y * ${ROW}u + group.x;
if (flat >= ${COUNT}u) { return; }
let row = flat / ${N}u;
let column = flat % ${N}u;
var total = 0.0;
for (var k = thread; k < ${K}u; k += ${LANES}u) {
total = fma(fetch_a(batch, row, k), fetch_b(batch, k, column), total);
}
partial[thread] = total;
workgroupBarrier();
${TREE}
if (thread == 0u) { put(batch, row, column, partial[0]); }
