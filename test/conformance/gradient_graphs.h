/* Graphs with control flow whose gradients gradient.c checks: inputs c, s and w, output l, of one element, the sum of q. */
#ifndef TEST_CONFORMANCE_GRADIENT_GRAPHS_H
#define TEST_CONFORMANCE_GRADIENT_GRAPHS_H

#define INPUTS " input c: f64[2, 3]\n input s: f64[4, 2, 3]\n input w: f64[2, 3]\n"
#define LOSS " l = reduce_sum(q)\n output l\n}"
/* n = h v^T x + x v^T h + v, y = tanh(n) */
#define RECURRENCE                                                                                                       \
    "\n  input h: f64[2, 3]\n  input x: f64[2, 3]\n  input v: f64[2, 3]\n"                                               \
    "  m = dot_general(h, v, contract_x=[1], contract_w=[1])\n  d = dot_general(m, x, contract_x=[1], contract_w=[0])\n" \
    "  k = dot_general(x, v, contract_x=[1], contract_w=[1])\n  l = dot_general(k, h, contract_x=[1], contract_w=[0])\n" \
    "  e = add(d, l)\n  n = add(e, v)\n  y = tanh(n)\n"
/* Differentiated in both directions. */
static const char *const graphs[] = {
    /* carry, sequence, capture, stack */
    "graph {" INPUTS " r, ys = scan(c, s, w, carries=1, sequences=1, body=graph {\n"
    "  input h: f64[2, 3]\n  input x: f64[2, 3]\n  input v: f64[2, 3]\n"
    "  m = mul(h, v)\n  n = add(m, x)\n  y = tanh(n)\n  output y\n  output n\n })\n"
    " a = reduce_sum(ys, axes=[0])\n q = mul(a, r)\n" LOSS,
    /* backwards over the sequence, and the stack too */
    "graph {" INPUTS " r, ys = scan(c, s, w, carries=1, sequences=1, reverse=[1, 1], body=graph {\n"
    "  input h: f64[2, 3]\n  input x: f64[2, 3]\n  input v: f64[2, 3]\n"
    "  m = mul(h, v)\n  n = add(m, x)\n  y = sin(n)\n  output y\n  output n\n })\n"
    " p = mul(ys, s)\n a = reduce_sum(p, axes=[0])\n q = mul(a, r)\n" LOSS,
    /* only the stack is read; forwards over the sequence, the stack backwards */
    "graph {" INPUTS " r, ys = scan(c, s, w, carries=1, sequences=1, reverse=[0, 1], body=graph {\n"
    "  input h: f64[2, 3]\n  input x: f64[2, 3]\n  input v: f64[2, 3]\n"
    "  m = mul(h, x)\n  y = tanh(m)\n  e = mul(y, v)\n  output y\n  output e\n })\n q = mul(ys, s)\n" LOSS,
    /* two carries that change places, no sequence, a length */
    "graph {" INPUTS " r, t = scan(c, w, s, carries=2, sequences=0, length=[5], body=graph {\n"
    "  input h: f64[2, 3]\n  input k: f64[2, 3]\n  input x: f64[4, 2, 3]\n"
    "  a = reduce_sum(x, axes=[0])\n  m = sin(a)\n  n = mul(k, m)\n  output n\n  output h\n })\n q = sub(r, t)\n" LOSS,
    /* an integer carry that chooses an element; a composite in the body */
    "graph {" INPUTS
    " i0 = constant i64[] {0}\n r, j = scan(c, i0, s, carries=2, sequences=0, length=[4], body=graph {\n"
    "  input h: f64[2, 3]\n  input i: i64[]\n  input x: f64[4, 2, 3]\n  one = constant i64[] {1}\n"
    "  e = gather(x, i, axis=0)\n  m = mul(e, h)\n  y = softmax(m, axis=1)\n  k = add(i, one)\n  output y\n  output k\n })\n"
    " q = exp(r)\n" LOSS,
    /* early exit: after the iteration in which the sum passes a bound */
    "graph {" INPUTS " r, ys, n = scan(c, s, w, carries=1, sequences=1, conditional=true, body=graph {\n"
    "  input h: f64[2, 3]\n  input x: f64[2, 3]\n  input v: f64[2, 3]\n  z = constant f64[] {0.25}\n"
    "  a = mul(x, x)\n  b = mul(v, v)\n  d = add(a, b)\n  y = add(h, d)\n  e = sqrt(d)\n  t = reduce_sum(e)\n"
    "  g = lt(t, z)\n  f = log(e)\n  output y\n  output g\n  output f\n })\n"
    " p = reduce_sum(ys, axes=[0])\n q = mul(p, r)\n" LOSS,
    /* a scan in a scan, which captures of both levels enter */
    "graph {" INPUTS " r = scan(c, s, w, carries=1, sequences=1, body=graph {\n"
    "  input h: f64[2, 3]\n  input x: f64[2, 3]\n  input v: f64[2, 3]\n"
    "  i = scan(h, x, v, carries=1, sequences=0, length=[3], body=graph {\n"
    "   input k: f64[2, 3]\n   input o: f64[2, 3]\n   input u: f64[2, 3]\n"
    "   m = mul(k, u)\n   n = add(m, o)\n   y = tanh(n)\n   output y\n  })\n"
    "  g = mul(i, v)\n  output g\n })\n q = mul(r, r)\n" LOSS,
    /* sums over the iterations that become contractions: of operands that the loop keeps, of cotangents, of elements of a sequence; a bias beside
     * them */
    "graph {" INPUTS " r = scan(c, s, w, carries=1, sequences=1, body=graph {" RECURRENCE
    "  output y\n })\n q = mul(r, r)\n" LOSS,
    /* the same backwards over the sequence, with a stack */
    "graph {" INPUTS " r, ys = scan(c, s, w, carries=1, sequences=1, reverse=[1, 0], body=graph {" RECURRENCE
    "  output y\n  output n\n })\n a = mul(ys, s)\n p = reduce_sum(a, axes=[0])\n q = mul(r, p)\n" LOSS,
    /* with an early exit, behind which the sequence is not finite */
    "graph {" INPUTS " h0 = constant f64[] {0}\n k0 = constant i64[] {0}\n b = reduce_sum(s, axes=[1, 2], keep=true)\n"
    " i0 = iota(dtype=f64, shape=[4, 1, 1], axis=0)\n i1 = constant f64[] {2.5}\n i2 = lt(i0, i1)\n i3 = div(h0, h0)\n"
    " s1 = select(i2, s, i3)\n"
    " r, k, n = scan(c, k0, s1, w, carries=2, sequences=1, conditional=true, body=graph {\n"
    "  input h: f64[2, 3]\n  input i: i64[]\n  input x: f64[2, 3]\n  input v: f64[2, 3]\n"
    "  m = dot_general(x, v, contract_x=[1], contract_w=[1])\n  e = dot_general(m, h, contract_x=[1], contract_w=[0])\n"
    "  y = sin(e)\n  one = constant i64[] {1}\n  two = constant i64[] {2}\n  j = add(i, one)\n  g = lt(i, two)\n"
    "  output y\n  output j\n  output g\n })\n q = mul(r, r)\n" LOSS,
    /* a scan in a scan: contractions of both levels */
    "graph {" INPUTS " r = scan(c, s, w, carries=1, sequences=1, body=graph {\n"
    "  input h: f64[2, 3]\n  input x: f64[2, 3]\n  input v: f64[2, 3]\n"
    "  i = scan(h, x, v, carries=1, sequences=0, length=[3], body=graph {\n"
    "   input k: f64[2, 3]\n   input o: f64[2, 3]\n   input u: f64[2, 3]\n"
    "   m = dot_general(k, u, contract_x=[1], contract_w=[1])\n   p = dot_general(m, o, contract_x=[1], contract_w=[0])\n"
    "   n = add(p, u)\n   y = tanh(n)\n   output y\n  })\n"
    "  f = dot_general(i, v, contract_x=[0], contract_w=[0])\n  g = dot_general(i, f, contract_x=[1], contract_w=[1])\n"
    "  output g\n })\n q = mul(r, r)\n" LOSS,
    /* a bias, along whose columns cotangents are summed that are stacked for the weights */
    "graph {" INPUTS " r = scan(c, s, w, carries=1, sequences=1, body=graph {\n"
    "  input h: f64[2, 3]\n  input x: f64[2, 3]\n  input v: f64[2, 3]\n"
    "  m = dot_general(v, v, contract_x=[0], contract_w=[0])\n  e = dot_general(h, m, contract_x=[1], contract_w=[0])\n"
    "  b = reduce_sum(v, axes=[0])\n  d = broadcast(b, shape=[2, 3], axes=[1])\n  f = add(e, d)\n  n = add(f, x)\n"
    "  y = tanh(n)\n  output y\n })\n q = mul(r, r)\n" LOSS,
    /* a factor of the cotangents that does not change: it is applied to their sum */
    "graph {" INPUTS " r = scan(c, w, s, carries=1, sequences=0, length=[3], body=graph {\n"
    "  input h: f64[2, 3]\n  input v: f64[2, 3]\n  input t: f64[4, 2, 3]\n  a = reduce_sum(t, axes=[0])\n"
    "  m = dot_general(v, a, contract_x=[0], contract_w=[0])\n  e = dot_general(h, m, contract_x=[1], contract_w=[0])\n"
    "  f = sin(h)\n  y = add(e, f)\n  output y\n })\n q = mul(r, r)\n" LOSS,
    "graph {" INPUTS " r = scan(c, w, s, carries=1, sequences=0, length=[3], body=graph {\n"
    "  input h: f64[2, 3]\n  input v: f64[2, 3]\n  input t: f64[4, 2, 3]\n  a = reduce_sum(t, axes=[0])\n"
    "  m = dot_general(v, a, contract_x=[1], contract_w=[1])\n  e = dot_general(m, v, contract_x=[1], contract_w=[0])\n"
    "  f = add(h, e)\n  y = sin(f)\n  output y\n })\n q = mul(r, r)\n" LOSS,
    /* branches */
    "graph {" INPUTS " z = constant f64[] {0}\n t = reduce_sum(c)\n g = lt(t, z)\n"
    " r, u = if(g, c, w, s, then=graph {\n  input a: f64[2, 3]\n  input b: f64[2, 3]\n  input d: f64[4, 2, 3]\n"
    "  e = mul(a, b)\n  f = exp(b)\n  output e\n  output f\n }, otherwise=graph {\n"
    "  input a: f64[2, 3]\n  input b: f64[2, 3]\n  input d: f64[4, 2, 3]\n"
    "  e = sin(a)\n  f = reduce_sum(d, axes=[0])\n  output e\n  output f\n })\n q = mul(r, u)\n" LOSS,
    /* a branch in a scan */
    "graph {" INPUTS " r = scan(c, s, w, carries=1, sequences=1, body=graph {\n"
    "  input h: f64[2, 3]\n  input x: f64[2, 3]\n  input v: f64[2, 3]\n  z = constant f64[] {0}\n"
    "  t = reduce_sum(x)\n  g = lt(t, z)\n  y = if(g, h, v, then=graph {\n   input a: f64[2, 3]\n   input b: f64[2, 3]\n"
    "   e = mul(a, b)\n   output e\n  }, otherwise=graph {\n   input a: f64[2, 3]\n   input b: f64[2, 3]\n   e = tanh(a)\n"
    "   output e\n  })\n  output y\n })\n q = mul(r, r)\n" LOSS,
    /* no iteration */
    "graph {" INPUTS
    " r = scan(c, w, carries=1, sequences=0, length=[0], body=graph {\n  input h: f64[2, 3]\n  input v: f64[2, 3]\n"
    "  y = mul(h, v)\n  output y\n })\n q = mul(r, w)\n" LOSS,
};

/* `while`, which has tangents only: the number of its iterations depends on numbers */
static const char loop[] =
    "graph {" INPUTS " n = constant i64[] {0}\n r, k, t = while(c, n, w, s, condition=graph {\n"
    "  input h: f64[2, 3]\n  input i: i64[]\n  input u: f64[2, 3]\n  input x: f64[4, 2, 3]\n  m = constant i64[] {4}\n"
    "  a = lt(i, m)\n  b = mul(h, h)\n  d = reduce_sum(b)\n  e = constant f64[] {1000}\n  f = lt(d, e)\n  g = and(a, f)\n"
    "  output g\n }, body=graph {\n"
    "  input h: f64[2, 3]\n  input i: i64[]\n  input u: f64[2, 3]\n  input x: f64[4, 2, 3]\n  o = constant i64[] {1}\n"
    "  j = add(i, o)\n  y = gather(x, i, axis=0)\n  z = mul(h, y)\n  v = add(z, u)\n  p = sin(u)\n  output v\n  output j\n"
    "  output p\n })\n q = mul(r, t)\n" LOSS;

#endif
