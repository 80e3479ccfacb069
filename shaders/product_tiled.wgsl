// A block of the product in workgroup memory: ${BM} x ${BN} outputs, ${BK} terms at a time.
// Operands come through fetch_a(batch, row, term) and fetch_b(batch, term, column), which are
// called inside their ranges only; results leave through put(batch, row, column, value).
let batch = group.z;
let row0 = group.y * ${BM}u;
let column0 = group.x * ${BN}u;
let ty = thread / ${TX}u;
let tx = thread % ${TX}u;
${DECLARE}
for (var k0 = 0u; k0 < ${K}u; k0 += ${BK}u) {
${LOAD}
workgroupBarrier();
${MULTIPLY}
workgroupBarrier();
}
${STORE}
