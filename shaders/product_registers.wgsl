// ${TM} x ${TN} outputs per invocation in registers, without workgroup memory or barriers:
// what a software device does best. Rows and columns past the edge are computed at the edge
// and not stored. Results are stored in a loop: written out, they would take drivers longer to compile
// than all the rest.
let batch = group.z;
let flat = group.x * ${THREADS}u + thread;
if (flat >= ${TILES}u) { return; }
let row0 = (flat / ${COLUMNS}u) * ${TM}u;
let column0 = (flat % ${COLUMNS}u) * ${TN}u;
${DECLARE}
for (var k = 0u; k < ${K}u; k += ${TERMS}u) {
${MULTIPLY}
}
var c: array<vec4<f32>, ${TM} * ${TN} / 4>;
${GATHER}
for (var i = 0u; i < ${TM}u && row0 + i < ${M}u; i++) {
  for (var j = 0u; j < ${TN}u && column0 + j < ${N}u; j++) {
    put(batch, row0 + i, column0 + j, c[i * ${QUADS}u + j / 4u][j % 4u]);
  }
}
