/* A contraction with bias and ReLU, and its schedule on a matrix unit: what tests of lowering and of emission share. */
#ifndef TEST_TIR_MATRIX_UNIT_H
#define TEST_TIR_MATRIX_UNIT_H

#define REGION(type, m, n, k)                                                                                   \
    "region r\ninput x " type "[" m ", " k "]\ninput w " type "[" k ", " n "]\ninput b f32[" n "]\n"            \
    "reduce C f32 (i: " m ", j: " n " | k: " k                                                                  \
    ") init 0:f32 = muladd(cast.f32(x[i, k]), cast.f32(w[k, j]), acc(0):f32) merge acc(0):f32 + other(0):f32\n" \
    "map D f32 (i: " m ", j: " n ") = max(C[i, j] + b[j], 0:f32)\noutput D\n"

#define REWRITE                                                                \
    "rewrite:\n copy x -> xs\n copy w -> ws\n copy xs -> xf\n copy ws -> wf\n" \
    " layout C (i/32, j/32, i/16%2, j/8%4, i%8, j/2%4, i/8%2, j%2)\n"          \
    " layout xf (i/16, k/16, i%8, k/2%4, k/8%2, i/8%2, k%2)\n"                 \
    " layout wf (j/8, k/16, j%8, k/2%4, k/8%2, k%2)\n"
#define RESULT RESULT_OF("")
#define RESULT_OF(batch)                                                                               \
    "loops:\n split D.i 64 -> ib ir mask full\n split D.j 64 -> jb jr mask full\n"                     \
    " split D.ir 32 -> iw im mask\n split D.im 16 -> it ii mask\n split D.ii 8 -> ih il mask\n"        \
    " split D.jr 32 -> jw jm mask\n split D.jm 8 -> jt jj mask\n split D.jj 2 -> jl je mask\n"         \
    " order D: " batch " ib jb iw jw il jl it ih jt je\n par D.ib D.jb\n thread D.iw D.jw D.il D.jl\n" \
    " unroll D.it D.ih D.jt\n vec D.je\n"
#define SUMS SUMS_OF("")
#define SUMS_OF(batch)                                                                         \
    " at C D.jb\n store C reg\n"                                                               \
    " split C.i 32 -> iw im mask\n split C.im 16 -> it ii mask\n split C.ii 8 -> ih il mask\n" \
    " split C.j 32 -> jw jm mask\n split C.jm 8 -> jt jj mask\n split C.jj 2 -> jl je mask\n"  \
    " split C.k 32 -> ko ki mask full\n split C.ki 16 -> ks kk mask\n"                         \
    " order C: " batch                                                                         \
    " ko iw jw ks il jl it jt ih je kk\n thread C.iw C.jw C.il C.jl\n unroll C.it C.jt C.ih C.je C.ks\n"
#define COPIES                                                                             \
    " at xs C.ko\n at ws C.ko\n store xs shared\n store ws shared\n"                       \
    " split xs.k 8 -> kt kv mask\n order xs: i kt kv\n thread xs.i xs.kt\n unroll xs.kv\n" \
    " split ws.j 8 -> jt jv mask\n order ws: k jt jv\n thread ws.k ws.jt\n unroll ws.jv\n"
#define FRAGMENTS FRAGMENTS_OF("")
#define FRAGMENTS_OF(batch)                                                                                                   \
    " at xf C.ks\n at wf C.ks\n store xf reg\n store wf reg\n"                                                                \
    " split xf.i 16 -> it ii mask\n split xf.ii 8 -> ih il mask\n split xf.k 8 -> kh kr mask\n split xf.kr 2 -> kl ke mask\n" \
    " order xf: " batch " il kl it kh ih ke\n thread xf.il xf.kl\n unroll xf.it xf.kh xf.ih\n vec xf.ke\n"                    \
    " split wf.j 8 -> jt jl mask\n split wf.k 8 -> kh kr mask\n split wf.kr 2 -> kl ke mask\n"                                \
    " order wf: " batch " jl kl jt kh ke\n thread wf.jl wf.kl\n unroll wf.jt wf.kh\n vec wf.ke\n"
#define UNIT(type) " unit C.il,ih,jl,je,kk mma.m16n8k16." type " deviates assoc\n"
#define SCHEDULE(type) REWRITE RESULT SUMS COPIES FRAGMENTS UNIT(type)

#endif
