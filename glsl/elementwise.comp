#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
// One elementwise op.
//   -DOP=op_mul -DARITY=2       the function and its number of inputs
//   -DIN=FLOAT32 -DOUT=BOOL     dtypes of the inputs, and of the memory that is written
//   -DMASK=1                    the first input is bool
//   -DPARAMETERS=1              numbers that follow the inputs
//   -DSTATUS=3                  the op may refuse its input
// WIDTH 1: an element a lane and step, any layout. WIDTH 4: four neighbours of the last axis, whose length
// the host has divided, and whose strides it has multiplied, by four; KINDS says how each operand's four lie
// in memory.

#define BOOL 0
#define UINT8 1
#define INT32 2
#define FLOAT32 3

#if ARITY < 3
#define VIEWS (ARITY + 1)
#define FIRST 1  // view of the first input
#define RESULT
#else
#define VIEWS ARITY  // the fourth view would not fit into 128 bytes: the result is dense
#define FIRST 0
#define RESULT int to;
#endif
#if PARAMETERS
#define NUMBERS float numbers[PARAMETERS];
#else
#define NUMBERS
#endif
#define PARAMS RESULT uint tail; uint site; NUMBERS
#include "grid.glsl"
#include "view.glsl"

#ifdef STATUS
#include "status.glsl"
void refuse() { report(push.site, 0, 0); }
#else
void refuse() {}
#endif

#define FLOATING (IN == FLOAT32)
#if IN == FLOAT32
#define T float
#define ONES 0.0  // floats have no bitwise ops
T loaded(uint word) { return uintBitsToFloat(word); }
#elif IN == INT32
#define T int
#define ONES -1
T loaded(uint word) { return int(word); }
#elif IN == UINT8
#define T uint
#define ONES 255u
T loaded(uint word) { return word; }
#else
#define T uint
#define ONES 1u
T loaded(uint word) { return word; }
#endif
#include "elementwise.glsl"

// Conversions are NumPy's; a float that no int32 holds becomes the smallest one, as on x86.
int whole(float x) { return x >= -2147483648.0 && x < 2147483648.0 ? int(x) : int(0x80000000u); }
int whole(int x) { return x; }
int whole(uint x) { return int(x); }
int whole(bool x) { return int(x); }
bool truth(float x) { return (floatBitsToUint(x) & 0x7FFFFFFFu) != 0u; }
bool truth(int x) { return x != 0; }
bool truth(uint x) { return x != 0u; }
bool truth(bool x) { return x; }

#if OUT == FLOAT32
#define STORED(x) floatBitsToUint(float(x))
#elif OUT == INT32
#define STORED(x) uint(whole(x))
#elif OUT == UINT8
#define STORED(x) (uint(whole(x)) & 255u)
#else
#define STORED(x) uint(truth(x))
#endif

#if MASK
#define LOADED_FIRST(word) ((word) != 0u)
#else
#define LOADED_FIRST(word) loaded(word)
#endif

#if PARAMETERS == 0
#define MORE
#elif PARAMETERS == 1
#define MORE , push.numbers[0]
#else
#define MORE , push.numbers[0], push.numbers[1]
#endif

// The word of the result, from the words of the inputs.
uint result(uint a, uint b, uint c) {
#if ARITY == 1
    return STORED(OP(LOADED_FIRST(a) MORE));
#elif ARITY == 2
    return STORED(OP(LOADED_FIRST(a), loaded(b) MORE));
#else
    return STORED(OP(LOADED_FIRST(a), loaded(b), loaded(c) MORE));
#endif
}

layout(constant_id = 2) const uint WIDTH = 1;
layout(constant_id = 3) const uint KINDS = 0;  // two bits for each operand, the result first
layout(constant_id = 4) const uint AHEAD = 1;  // fours that a lane reads before it writes any
const uint APART = 0, WIDE = 1, REPEATED = 2;  // of four elements: each by itself, one vec4, the same element
const int LAST = MAX_RANK - 1;

uint kind(uint operand) { return (KINDS >> (2 * operand)) & 3u; }

// x: the operand's words one by one, x4: in fours on 16 bytes. Defines its element i, its element i behind
// the last of the fours, and its four elements i.
#define INPUT(NAME, x, x4, operand)                                                                         \
    const int NAME##_VIEW = FIRST + operand - 1;                                                            \
    int NAME##_step() { return push.views[NAME##_VIEW].strides[LAST] >> 2; }                                \
    uint NAME##_one(uint i) { return x[cell(NAME##_VIEW, i)]; }                                             \
    uint NAME##_tail(uint i) { return x[push.views[NAME##_VIEW].offset + int(i) * NAME##_step()]; }         \
    uvec4 NAME##_four(uint i) {                                                                             \
        int at = cell(NAME##_VIEW, i), step = NAME##_step();                                                \
        if (kind(operand) == WIDE) return x4[at >> 2];                                                      \
        if (kind(operand) == REPEATED) return uvec4(x[at]);                                                 \
        return uvec4(x[at], x[at + step], x[at + 2 * step], x[at + 3 * step]);                              \
    }

layout(binding = 0) writeonly buffer Y { uint y[]; };
layout(binding = 0) writeonly buffer Y4 { uvec4 y4[]; };
layout(binding = 1) readonly buffer A { uint a[]; };
layout(binding = 1) readonly buffer A4 { uvec4 a4[]; };
INPUT(A, a, a4, 1)
#if ARITY > 1
layout(binding = 2) readonly buffer B { uint b[]; };
layout(binding = 2) readonly buffer B4 { uvec4 b4[]; };
INPUT(B, b, b4, 2)
#else
#define B_one(i) 0u
#define B_tail(i) 0u
#define B_four(i) uvec4(0)
#endif
#if ARITY > 2
layout(binding = 3) readonly buffer C { uint c[]; };
layout(binding = 3) readonly buffer C4 { uvec4 c4[]; };
INPUT(C, c, c4, 3)
#else
#define C_one(i) 0u
#define C_tail(i) 0u
#define C_four(i) uvec4(0)
#endif

#if ARITY < 3
int target(uint i) { return cell(0, i); }
int target_step() { return push.views[0].strides[LAST] >> 2; }
int target_start() { return push.views[0].offset; }
#else
int target(uint i) { return push.to + int(i * WIDTH); }
int target_step() { return 1; }
int target_start() { return push.to; }
#endif

void store_four(uint i, uvec4 a, uvec4 b, uvec4 c) {
    uvec4 words;
    for (int k = 0; k < 4; ++k) words[k] = result(a[k], b[k], c[k]);
    int at = target(i), step = target_step();
    if (kind(0) == WIDE)
        y4[at >> 2] = words;
    else
        for (int k = 0; k < 4; ++k) y[at + k * step] = words[k];
}

void fours() {
    uint step = gl_WorkGroupSize.x, first = gl_WorkGroupID.x * run_length(push.count);
    uint end = min(push.count, first + run_length(push.count));
    for (uint i = first + gl_LocalInvocationID.x; i < end; i += AHEAD * step) {
        uvec4 p[AHEAD], q[AHEAD], r[AHEAD];
        [[unroll]] for (uint n = 0u; n < AHEAD; ++n) {
            uint at = min(i + n * step, end - 1u);  // reading the last ones again does no harm
            p[n] = A_four(at);
            q[n] = B_four(at);
            r[n] = C_four(at);
        }
        [[unroll]] for (uint n = 0u; n < AHEAD; ++n)
            if (i + n * step < end) store_four(i + n * step, p[n], q[n], r[n]);
    }
}

void main() {
    if (WIDTH == 1u) {
        EACH(i, push.count) y[target(i)] = result(A_one(i), B_one(i), C_one(i));
        return;
    }
    fours();
    uint i = gl_GlobalInvocationID.x;
    if (i < push.tail) {
        i += 4u * push.count;
        y[target_start() + int(i) * target_step()] = result(A_tail(i), B_tail(i), C_tail(i));
    }
}
