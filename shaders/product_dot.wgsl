// ${ROWS} rows times a matrix whose terms are neighbours: ${LANES} lanes share the terms of a column and
// add up in a fixed order; ${SPAN} columns to a workgroup.
let batch = group.z;
let lane = thread % ${LANES}u;
let local_column = thread / ${LANES}u;
let column = (group.y * ${ROW}u + group.x) * ${SPAN}u + local_column;
${DECLARE}
if (column < ${N}u) {
for (var k = lane * ${WIDTH}u; k < ${K}u; k += ${STEP}u) {
let b = ${FETCH_B};
${MULTIPLY}
}
}
${KEEP}
workgroupBarrier();
if (lane < ${ROWS}u && column < ${N}u) {
let row = lane;
var total = partial[row * ${THREADS}u + local_column * ${LANES}u];
for (var s = 1u; s < ${LANES}u; s++) { total += partial[row * ${THREADS}u + local_column * ${LANES}u + s]; }
put(batch, row, column, total);
}
