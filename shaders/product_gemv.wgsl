// ${ROWS} rows times a matrix whose columns are neighbours: ${LANES} lanes of ${WIDTH} columns each, the terms
// shared by ${SLICES} slices, which add up in a fixed order.
let batch = group.z;
let lane = thread % ${LANES}u;
let slice = thread / ${LANES}u;
let column = (group.y * ${ROW}u + group.x) * ${SPAN}u + lane * ${WIDTH}u;
${DECLARE}
if (column < ${N}u) {
for (var k = slice; k < ${K}u; k += ${SLICES}u) {
let b = ${FETCH_B};
${MULTIPLY}
}
}
${KEEP}
workgroupBarrier();
if (slice < ${ROWS}u && column < ${N}u) {
let row = slice;
var total = partial[row * ${THREADS}u + lane];
for (var s = 1u; s < ${SLICES}u; s++) { total += partial[row * ${THREADS}u + s * ${LANES}u + lane]; }
${STORE}
}
