typedef signed char i8;
typedef short i16;
typedef int i32;
typedef long long i64;
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef unsigned short f16;  /* bits */
typedef unsigned short bf16; /* bits */
#define HELPER static __device__ __forceinline__
/* x/0 = 0, MIN/-1 wraps */
template <class T> HELPER T int_div(T a, T b) { return b == 0 ? T(0) : T(-1) < T(0) && b == T(-1) ? T(0 - u64(a)) : T(a / b); }
template <class T> HELPER T int_rem(T a, T b) { return b == 0 ? T(0) : T(u64(a) - u64(b) * u64(int_div(a, b))); }
template <class T> HELPER T int_pow(T x, T y) {
  if (T(-1) < T(0) && y < T(0)) return x == T(1) ? T(1) : x == T(-1) ? ((y & 1) ? T(-1) : T(1)) : T(0);
  u64 result = 1, base = u64(i64(x));
  for (u64 n = u64(y); n; n >>= 1, base *= base) if (n & 1) result *= base;
  return T(result);
}
template <class T> HELPER T int_shl(T a, u64 amount) { return amount >= sizeof(T) * 8 ? T(0) : T(u64(a) << amount); }
template <class T> HELPER T int_shr(T a, u64 amount) { return amount >= sizeof(T) * 8 ? T(0) : T(a >> amount); }
template <class T> HELPER T floor_div(T a, T b) { return a / b - (a % b < 0); }
template <class T> HELPER T floor_rem(T a, T b) { T r = a % b; return r < 0 ? r + b : r; }
template <class T> HELPER T int_min(T a, T b) { return a < b ? a : b; }
template <class T> HELPER T int_max(T a, T b) { return a < b ? b : a; }
/* NaN if either is, -0 below +0 */
HELPER float float_min(float a, float b) { float r; asm("min.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b)); return r; }
HELPER float float_max(float a, float b) { float r; asm("max.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b)); return r; }
HELPER double double_min(double a, double b) { return a != a || b != b ? a + b : fmin(a, b); }
HELPER double double_max(double a, double b) { return a != a || b != b ? a + b : fmax(a, b); }
/* saturates, NaN gives 0; low, high: the first values of F beyond T */
template <class T, class F> HELPER T float_to_int(F x, F low, F high, T least, T most) {
  return x != x ? T(0) : x <= low ? least : x >= high ? most : T(x);
}
HELPER f16 f16_of(float x) { f16 r; asm("cvt.rn.f16.f32 %0, %1;" : "=h"(r) : "f"(x)); return r; }
HELPER f16 f16_of(double x) { f16 r; asm("cvt.rn.f16.f64 %0, %1;" : "=h"(r) : "d"(x)); return r; }
HELPER float float_of_f16(f16 x) { float r; asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"(x)); return r; }
HELPER bf16 bf16_of(float x) { bf16 r; asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(r) : "f"(x)); return r; }
HELPER bf16 bf16_of(double x) { /* to odd first: one rounding in all */
  float r = __double2float_rz(x);
  return bf16_of(double(r) == x || x != x ? r : __int_as_float(__float_as_int(r) | 1));
}
HELPER float float_of_bf16(bf16 x) { return __int_as_float(int(x) << 16); }
/* bits past the 53rd become sticky, so that a second rounding rounds as one */
HELPER double sticky(u64 x) { return double(x >> 53 ? (x & ~0x7ffull) | u64((x & 0x7ff) != 0) << 11 : x); }
HELPER double sticky(i64 x) { return x < 0 ? -sticky(0 - u64(x)) : sticky(u64(x)); }
HELPER u32 shuffle(u32 x, int lane) { return __shfl_sync(0xffffffffu, x, lane); }
HELPER i32 shuffle(i32 x, int lane) { return __shfl_sync(0xffffffffu, x, lane); }
HELPER u64 shuffle(u64 x, int lane) { return __shfl_sync(0xffffffffu, x, lane); }
HELPER i64 shuffle(i64 x, int lane) { return __shfl_sync(0xffffffffu, x, lane); }
HELPER float shuffle(float x, int lane) { return __shfl_sync(0xffffffffu, x, lane); }
HELPER double shuffle(double x, int lane) { return __shfl_sync(0xffffffffu, x, lane); }
template <class T> HELPER T shuffle(T x, int lane) { return T(__shfl_sync(0xffffffffu, u32(x), lane)); }
/* loop IR of kernel 0
kernel r(x: f32[1, 512, 7, 7] arg align 16, w: f32[512, 512, 3, 3] arg align 16, D: f32[512, 7, 7] arg align 16, C_pieces_out: f32[16, 512, 7, 7] workspace, C_pieces: f32[1, 8, 4, 1, 2, 4, 1, 2, 4, 1] reg, C_pieces_left: f32[1, 2, 3, 4, 32] shared, C_pieces_right: f32[1, 2, 3, 3, 8, 8] shared, C: f32[1, 1, 1] reg) workspace(1605632) local(0)
phase "C_pieces_out" tasks=256 task=task {
  let block0 = task/16
  let piece = task%16
  for lane0 in 0..8 thread {
    for part1 in 0..4 thread {
      for lane2 in 0..2 thread {
        for turn1 in 0..2 unroll {
          for run0 in 0..4 unroll {
            for run2 in 0..4 unroll {
              C_pieces[0, lane0, run0, 0, turn1, part1, 0, lane2, run2, 0] = 0:f32
            }
          }
        }
      }
    }
  }
  for block4 in 0..16 {
    barrier
    for lane4 in 0..2 thread {
      for co in 0..32 thread {
        for within in 0..2 unroll {
          for kh in 0..3 unroll {
            for turn4 in 0..2 unroll {
              C_pieces_left[0, within, kh, lane4 + turn4*2, co] = w[co + block0*32, block4*2 + within + piece*32, kh, lane4 + turn4*2 where lane4 + turn4*2 < 3 else 0]
            }
          }
        }
      }
    }
    for oh in 0..8 thread {
      for ow in 0..8 thread {
        for within in 0..2 unroll {
          for kh in 0..3 unroll {
            for kw in 0..3 unroll {
              C_pieces_right[0, within, kh, kw, oh, ow] = x[0, block4*2 + within + piece*32, oh + kh - 1, ow + kw - 1 where 0 < ow + kw && (oh + kh < 8 && (0 < oh + kh && ow + kw < 8)) else 0]
            }
          }
        }
      }
    }
    barrier
    for lane0 in 0..8 thread {
      for part1 in 0..4 thread {
        for lane2 in 0..2 thread {
          for step4 in 0..2 unroll {
            for kh in 0..3 unroll {
              for kw in 0..3 unroll {
                for turn1 in 0..2 unroll {
                  for run0 in 0..4 unroll {
                    for run2 in 0..4 unroll {
                      C_pieces[0, lane0, run0, 0, turn1, part1, 0, lane2, run2, 0] = fma(C_pieces_right[0, step4, kh, kw, part1 + turn1*4, lane2*4 + run2], C_pieces_left[0, step4, kh, kw, lane0*4 + run0], C_pieces[0, lane0, run0, 0, turn1, part1, 0, lane2, run2, 0])
                    }
                  }
                }
              }
            }
          }
        }
      }
    }
  }
  for lane0 in 0..8 thread {
    for part1 in 0..4 thread {
      for lane2 in 0..2 thread {
        for turn1 in 0..2 unroll {
          for run0 in 0..4 unroll {
            for run2 in 0..4 vec {
              if (part1 + turn1*4 < 7 && lane2*4 + run2 < 7) {
                C_pieces_out[piece, lane0*4 + run0 + block0*32, part1 + turn1*4, lane2*4 + run2] = C_pieces[0, lane0, run0, 0, turn1, part1, 0, lane2, run2, 0]
              }
            }
          }
        }
      }
    }
  }
}
phase "D" tasks=98 task=task {
  let block = task
  for lane in 0..256 thread {
    C[0, 0, 0] = 0:f32
    for piece in 0..16 {
      C[0, 0, 0] = C[0, 0, 0] + C_pieces_out[piece, (lane + block*256)/49, (lane + block*11)/7%7, (lane + block*4)%7]
    }
    D[(lane + block*256)/49, (lane + block*11)/7%7, (lane + block*4)%7] = max(C[0, 0, 0], 0)
  }
}
*/
/* C_pieces_out */
extern "C" __global__ void __launch_bounds__(64) k0_p0(
    const float *x,
    const float *w,
    float *D,
    char *workspace, char *local, const i64 local_stride, const i64 iteration, const i64 first) {
  const int tid = threadIdx.x;
  const int task = int(first) + int(blockIdx.x);
  extern __shared__ __align__(1024) char shared[];
  float *const C_pieces_out = (float *)(workspace + 0);
  float C_pieces[32];
  float *const C_pieces_left = (float *)(shared + 0);
  float *const C_pieces_right = (float *)(shared + 3072);
  const int block0 = task / 16;
  const int piece = task % 16;
  {
    const int lane0 = tid / 8;
    const int lane = tid % 8;
    {
      const int part1 = lane / 2;
      const int lane_1 = lane % 2;
      {
        const int lane2 = lane_1;
        #pragma unroll
        for (int turn1 = 0; turn1 < 2; ++turn1) {
          #pragma unroll
          for (int run0 = 0; run0 < 4; ++run0) {
            #pragma unroll
            for (int run2 = 0; run2 < 4; ++run2) {
              C_pieces[turn1 * 4 + run0 * 8 + run2] = 0.0f;
            }
          }
        }
      }
    }
  }
  for (int block4 = 0; block4 < 16; ++block4) {
    __syncthreads();
    {
      const int lane4 = tid / 32;
      const int lane_2 = tid % 32;
      {
        const int co = lane_2;
        #pragma unroll
        for (int within = 0; within < 2; ++within) {
          #pragma unroll
          for (int kh = 0; kh < 3; ++kh) {
            #pragma unroll
            for (int turn4 = 0; turn4 < 2; ++turn4) {
              const int v0 = lane4 + turn4 * 2;
              C_pieces_left[lane4 * 32 + co + within * 384 + kh * 128 + turn4 * 64] = (v0 < 3) ? w[block0 * 147456 + piece * 288 + block4 * 18 + lane4 + co * 4608 + within * 9 + kh * 3 + turn4 * 2] : 0.0f;
            }
          }
        }
      }
    }
    {
      const int oh = tid / 8;
      const int lane_3 = tid % 8;
      {
        const int ow = lane_3;
        #pragma unroll
        for (int within_1 = 0; within_1 < 2; ++within_1) {
          #pragma unroll
          for (int kh_1 = 0; kh_1 < 3; ++kh_1) {
            #pragma unroll
            for (int kw = 0; kw < 3; ++kw) {
              const int v1 = oh + kh_1;
              const int v2 = ow + kw;
              C_pieces_right[oh * 8 + ow + within_1 * 576 + kh_1 * 192 + kw * 64] = (0 < v2 && (v1 < 8 && (0 < v1 && v2 < 8))) ? x[piece * 1568 + block4 * 98 + oh * 7 + ow + within_1 * 49 + kh_1 * 7 + kw - 8] : 0.0f;
            }
          }
        }
      }
    }
    __syncthreads();
    {
      const int lane0_1 = tid / 8;
      const int lane_4 = tid % 8;
      {
        const int part1_1 = lane_4 / 2;
        const int lane_5 = lane_4 % 2;
        {
          const int lane2_1 = lane_5;
          #pragma unroll
          for (int step4 = 0; step4 < 2; ++step4) {
            #pragma unroll
            for (int kh_2 = 0; kh_2 < 3; ++kh_2) {
              #pragma unroll
              for (int kw_1 = 0; kw_1 < 3; ++kw_1) {
                #pragma unroll
                for (int turn1_1 = 0; turn1_1 < 2; ++turn1_1) {
                  #pragma unroll
                  for (int run0_1 = 0; run0_1 < 4; ++run0_1) {
                    #pragma unroll
                    for (int run2_1 = 0; run2_1 < 4; ++run2_1) {
                      const float v3 = fmaf(C_pieces_right[part1_1 * 8 + lane2_1 * 4 + step4 * 576 + kh_2 * 192 + kw_1 * 64 + turn1_1 * 32 + run2_1], C_pieces_left[lane0_1 * 4 + step4 * 384 + kh_2 * 128 + kw_1 * 32 + run0_1], C_pieces[turn1_1 * 4 + run0_1 * 8 + run2_1]);
                      C_pieces[turn1_1 * 4 + run0_1 * 8 + run2_1] = v3;
                    }
                  }
                }
              }
            }
          }
        }
      }
    }
  }
  {
    const int lane0_2 = tid / 8;
    const int lane_6 = tid % 8;
    {
      const int part1_2 = lane_6 / 2;
      const int lane_7 = lane_6 % 2;
      {
        const int lane2_2 = lane_7;
        #pragma unroll
        for (int turn1_2 = 0; turn1_2 < 2; ++turn1_2) {
          #pragma unroll
          for (int run0_2 = 0; run0_2 < 4; ++run0_2) {
            #pragma unroll
            for (int run2_2 = 0; run2_2 < 4; ++run2_2) {
              if (part1_2 + turn1_2 * 4 < 7 && lane2_2 * 4 + run2_2 < 7) {
                C_pieces_out[block0 * 1568 + piece * 25088 + lane0_2 * 196 + part1_2 * 7 + lane2_2 * 4 + turn1_2 * 28 + run0_2 * 49 + run2_2] = C_pieces[turn1_2 * 4 + run0_2 * 8 + run2_2];
              }
            }
          }
        }
      }
    }
  }
}

/* D */
extern "C" __global__ void __launch_bounds__(256) k0_p1(
    const float *x,
    const float *w,
    float *D,
    char *workspace, char *local, const i64 local_stride, const i64 iteration, const i64 first) {
  const int tid = threadIdx.x;
  const int task = int(first) + int(blockIdx.x);
  extern __shared__ __align__(1024) char shared[];
  float *const C_pieces_out = (float *)(workspace + 0);
  float C[1];
  const int block = task;
  {
    const int lane = tid;
    C[0] = 0.0f;
    for (int piece = 0; piece < 16; ++piece) {
      C[0] = C[0] + C_pieces_out[block * 256 + lane + piece * 25088];
    }
    D[block * 256 + lane] = float_max(C[0], 0.0f);
  }
}

