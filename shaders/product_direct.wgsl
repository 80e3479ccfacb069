// One output per invocation: for products so thin that tiles would be mostly empty.
let batch = group.z;
let flat = (group.y * ${ROW}u + group.x) * ${THREADS}u + thread;
if (flat >= ${COUNT}u) { return; }
let row = flat / ${N}u;
let column = flat % ${N}u;
var total = 0.0;
for (var k = 0u; k < ${K}u; k += ${STEP}u) {
${ADD}
}
put(batch, row, column, total);
