// ${TM} x ${TN} outputs per invocation in registers, without workgroup memory or barriers:
// what a software device does best. Rows and columns past the edge are computed at the edge
// and not stored.
let batch = group.z;
let flat = group.x * ${THREADS}u + thread;
if (flat >= ${TILES}u) { return; }
let row0 = (flat / ${COLUMNS}u) * ${TM}u;
let column0 = (flat % ${COLUMNS}u) * ${TN}u;
${DECLARE}
for (var k = 0u; k < ${K}u; k++) {
${MULTIPLY}
}
${STORE}
