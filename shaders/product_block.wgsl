// A block of the product: ${BM} x ${BN} outputs, ${BK} terms at a time for each slice of ${LANES} threads.
// fetch_a(batch, row, term) and fetch_b(batch, term, column) are called inside their ranges only;
// results leave through put(batch, row, column, value).
let batch = group.z;
let terms = ${TERMS};
let row0 = group.y * ${BM}u;
let column0 = group.x * ${BN}u;
let slice = thread / ${LANES}u;
let lane = thread % ${LANES}u;
let cell = lane / 32u;
let cell_row = cell / ${ACROSS}u * ${TM}u + lane % 32u / 8u;
let cell_column = cell % ${ACROSS}u * ${TN}u + lane % 8u;
let at_a = ${A_BASE} + cell_row;
let at_b = ${B_BASE} + cell_column;
${DECLARE}
{
let k = slice * ${BK}u;
${FETCH}
${KEEP}
}
workgroupBarrier();
for (var k0 = 0u; k0 < terms; k0 += ${STEP}u) {
let k = k0 + ${STEP}u + slice * ${BK}u;
let more = k0 + ${STEP}u < terms;
if (more) {
${FETCH}
}
${MULTIPLY}
workgroupBarrier();
if (more) {
${KEEP}
}
workgroupBarrier();
}
${STORE}
