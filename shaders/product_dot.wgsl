// ${ROWS} rows times a matrix whose terms are neighbours: ${LANES} lanes share the terms of ${COLUMNS} columns and
// add up in a fixed order; ${SPAN} times as many columns to a workgroup.
let batch = group.z;
let lane = thread % ${LANES}u;
let first = ((group.y * ${ROW}u + group.x) * ${SPAN}u + thread / ${LANES}u) * ${COLUMNS}u;
${DECLARE}
if (first < ${N}u) {
for (var k = lane * ${WIDTH}u; k < ${K}u; k += ${STEP}u) {
${MULTIPLY}
}
}
${KEEP}
workgroupBarrier();
for (var o = lane; o < ${OUTPUTS}u; o += ${LANES}u) {
let column = first + o % ${COLUMNS}u;
if (column < ${N}u) {
let at = o * ${THREADS}u + thread - lane;
var total = partial[at];
for (var s = 1u; s < ${LANES}u; s++) { total += partial[at + s]; }
put(batch, o / ${COLUMNS}u, column, total);
}
}
