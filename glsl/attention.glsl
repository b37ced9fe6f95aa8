// What the kernels of attention share. Rows of queries, keys and values lie anywhere; along a row words are
// neighbours.
#include "math.glsl"

layout(push_constant) uniform Push {
    int batch, heads, queries, keys;  // heads: of queries
    int share;                        // of them that share a head of keys
    int width, values;                // words of a query or key, and of a value
    float scale;
    int start, mask, mask_step[3];    // -1: none
    int to, more, first;              // results, statistics, and where a pass begins
    int q, q_step[3];                 // first word, and steps of batch, head and row
    int k, k_step[3];
    int v, v_step[3];
    int g, g_step[3];
} push;

layout(constant_id = 1) const int PART = 1 << 30;       // keys or queries that are gone through at once
layout(constant_id = 2) const bool FOURS = false;  // all rows begin and end on 16 bytes

layout(binding = 0) buffer To { float to[]; };
layout(binding = 1) readonly buffer Q { float q[]; };
layout(binding = 1) readonly buffer Q4 { vec4 q4[]; };
layout(binding = 2) readonly buffer K { float k[]; };
layout(binding = 2) readonly buffer K4 { vec4 k4[]; };
layout(binding = 3) readonly buffer V { float v[]; };
layout(binding = 3) readonly buffer V4 { vec4 v4[]; };
layout(binding = 4) readonly buffer Start { int start[]; };
layout(binding = 5) readonly buffer Mask { float mask[]; };

// Four neighbours, of which `left` are there.
#define LOADER(name, words, fours) \
    vec4 name(int at, int left) { \
        if (FOURS) return left > 0 ? fours[at >> 2] : vec4(0.0); \
        vec4 found = vec4(0.0); \
        [[unroll]] for (int j = 0; j < 4; ++j) \
            if (j < left) found[j] = words[at + j]; \
        return found; \
    }
LOADER(load_q, q, q4)
LOADER(load_k, k, k4)
LOADER(load_v, v, v4)

#define STEPS(what, at) \
    ((at).x * push.what##_step[0] + (at).y * push.what##_step[1] + (at).z * push.what##_step[2])
#define ROW(what, at) (push.what + STEPS(what, at))

// Batch, head and query of a row of results.
ivec3 place(int row) {
    int head = row / push.queries;
    return ivec3(head / push.heads, head % push.heads, row - head * push.queries);
}

ivec3 shared_head(ivec3 at) { return ivec3(at.x, at.y / push.share, 0); }

// How many keys, from the first, a query sees.
int seen(ivec3 at) {
    if (push.start < 0) return push.keys;
    return clamp(min(start[push.start + at.x], push.keys) + at.z + 1, 0, push.keys);
}

float masked(float score, ivec3 at, int key) {
    return push.mask < 0 ? score : score + mask[ROW(mask, at) + key];
}

// The larger one, or NaN where there is one.
float higher(float a, float b) { return is_nan(a) ? a : is_nan(b) ? b : max(a, b); }

// What is subtracted from scores: nothing, where nothing is seen.
float shift_of(float top) { return top == -INFINITY ? 0.0 : top; }
