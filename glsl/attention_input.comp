#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
// Gradients of attention: with p the weights, r = g @ vᵀ and n = Σ p · r over keys, the slope of a score is
// p · (r - n) · scale. No scores are kept, and no atomics are needed.
//
//   -DPASS=STATISTICS  of each query: its largest score, Σ exp(score - largest), and that times r
//   -DPASS=OF_QUERIES  slopes @ k
//   -DPASS=OF_KEYS     slopesᵀ @ q and pᵀ @ g, over all queries that share a head of keys
//   -DTILES=0  for CPU drivers, and for wide rows: a lane a row of results. A pass goes through PART keys (or
//              queries) from `first` on and adds to what stands in memory, so that it can be cut into several
//   -DTILES=1  64 × 64 scores at a time; -DCOLUMNS as in attention.comp
#define STATISTICS 0
#define OF_QUERIES 1
#define OF_KEYS 2
#include "attention.glsl"

layout(binding = 6) readonly buffer G { float g[]; };
layout(binding = 6) readonly buffer G4 { vec4 g4[]; };
#if PASS == STATISTICS
layout(binding = 0) buffer Statistics { float known[]; };
#else
layout(binding = 7) readonly buffer Statistics { float known[]; };
#endif
LOADER(load_g, g, g4)

int all_queries() { return push.batch * push.heads * push.queries; }
int all_keys() { return push.batch * push.heads / push.share * push.keys; }

// Largest score, 1 / Σ exp, and n, of a query.
vec3 statistics(int row) {
    int at = push.more + row * 3;
    float total = known[at + 1] == 0.0 ? 0.0 : 1.0 / known[at + 1];
    return vec3(shift_of(known[at]), total, known[at + 2] * total);
}

int row_of(ivec3 at) { return (at.x * push.heads + at.y) * push.queries + at.z; }

#if !TILES
layout(local_size_x_id = 0) in;
const int CHUNK = 16;

#if PASS == OF_KEYS
// The j-th of the queries that share a head of keys.
ivec3 nth_query(ivec3 head, int j) {
    int own = j / push.queries;
    return ivec3(head.x, head.y * push.share + own, j - own * push.queries);
}

void work(int row) {
    int heads = push.heads / push.share, head = row / push.keys;
    ivec3 at = ivec3(head / heads, head % heads, row - head * push.keys);
    int from_k = ROW(k, at), from_v = ROW(v, at), count = push.share * push.queries;
    int dk = push.to + all_queries() * push.width + row * push.width;
    int dv = push.to + (all_queries() + all_keys()) * push.width + row * push.values;
    if (push.first == 0) {
        for (int d = 0; d < push.width; ++d) to[dk + d] = 0.0;
        for (int e = 0; e < push.values; ++e) to[dv + e] = 0.0;
    }
    for (int first = push.first, last = min(count, first + PART); first < last; first += CHUNK) {
        int query[CHUNK], outer[CHUNK];
        float s[CHUNK], r[CHUNK];
        [[unroll]] for (int j = 0; j < CHUNK; ++j) {
            ivec3 one = nth_query(at, min(first + j, last - 1));
            query[j] = ROW(q, one);
            outer[j] = ROW(g, one);
            s[j] = r[j] = 0.0;
        }
        for (int d = 0; d < push.width; ++d) {
            float x = k[from_k + d] * push.scale;
            [[unroll]] for (int j = 0; j < CHUNK; ++j) s[j] += x * q[query[j] + d];
        }
        for (int e = 0; e < push.values; ++e) {
            float x = v[from_v + e];
            [[unroll]] for (int j = 0; j < CHUNK; ++j) r[j] += x * g[outer[j] + e];
        }
        [[unroll]] for (int j = 0; j < CHUNK; ++j) {
            ivec3 one = nth_query(at, min(first + j, last - 1));
            vec3 those = statistics(row_of(one));
            float p = math_exp(masked(s[j], one, at.z) - those.x) * those.y;
            s[j] = first + j < last && at.z < seen(one) ? p : 0.0;
            r[j] = s[j] == 0.0 ? 0.0 : s[j] * (r[j] - those.z) * push.scale;
        }
        for (int d = 0; d < push.width; ++d) {
            float sum = to[dk + d];
            [[unroll]] for (int j = 0; j < CHUNK; ++j) sum += r[j] * q[query[j] + d];
            to[dk + d] = sum;
        }
        for (int e = 0; e < push.values; ++e) {
            float sum = to[dv + e];
            [[unroll]] for (int j = 0; j < CHUNK; ++j) sum += s[j] * g[outer[j] + e];
            to[dv + e] = sum;
        }
    }
}
#define COUNT all_keys()

#else
void work(int row) {
    ivec3 at = place(row), head = shared_head(at);
    int from_q = ROW(q, at), from_g = ROW(g, at), end = seen(at), last = min(end, push.first + PART);
#if PASS == STATISTICS
    int state = push.more + row * 3;
    vec3 sums = vec3(-INFINITY, 0.0, 0.0);
    if (push.first > 0) sums = vec3(known[state], known[state + 1], known[state + 2]);
#else
    int dq = push.to + row * push.width;
    vec3 sums = statistics(row);
    if (push.first == 0)
        for (int d = 0; d < push.width; ++d) to[dq + d] = 0.0;
#endif
    for (int first = push.first; first < last; first += CHUNK) {
        int key[CHUNK], value[CHUNK];
        float s[CHUNK], r[CHUNK];
        [[unroll]] for (int j = 0; j < CHUNK; ++j) {
            ivec3 one = ivec3(head.xy, min(first + j, last - 1));
            key[j] = ROW(k, one);
            value[j] = ROW(v, one);
            s[j] = r[j] = 0.0;
        }
        for (int d = 0; d < push.width; ++d) {
            float x = q[from_q + d] * push.scale;
            [[unroll]] for (int j = 0; j < CHUNK; ++j) s[j] += x * k[key[j] + d];
        }
        for (int e = 0; e < push.values; ++e) {
            float x = g[from_g + e];
            [[unroll]] for (int j = 0; j < CHUNK; ++j) r[j] += x * v[value[j] + e];
        }
        float above = sums.x;
        [[unroll]] for (int j = 0; j < CHUNK; ++j) {
            s[j] = first + j < last ? masked(s[j], at, min(first + j, last - 1)) : -INFINITY;
            above = higher(above, s[j]);
        }
#if PASS == STATISTICS
        sums.yz *= math_exp(sums.x - shift_of(above));
        sums.x = above;
        [[unroll]] for (int j = 0; j < CHUNK; ++j) {
            float p = math_exp(s[j] - shift_of(above));
            sums.y += p;
            sums.z += p == 0.0 ? 0.0 : p * r[j];
        }
#else
        [[unroll]] for (int j = 0; j < CHUNK; ++j) {
            float p = math_exp(s[j] - sums.x) * sums.y;
            r[j] = p == 0.0 ? 0.0 : p * (r[j] - sums.z) * push.scale;
        }
        for (int d = 0; d < push.width; ++d) {
            float sum = to[dq + d];
            [[unroll]] for (int j = 0; j < CHUNK; ++j) sum += r[j] * k[key[j] + d];
            to[dq + d] = sum;
        }
#endif
    }
#if PASS == STATISTICS
    [[unroll]] for (int j = 0; j < 3; ++j) known[state + j] = sums[j];
#endif
}
#define COUNT all_queries()
#endif

void main() {
    int lanes = int(gl_NumWorkGroups.x * gl_WorkGroupSize.x);
    for (int i = int(gl_GlobalInvocationID.x); i < COUNT; i += lanes) work(i);
}

#else
#include "attention_tiles.glsl"

#if PASS == OF_KEYS
TIMES(scores, load_k, load_q)
TIMES(outer_products, load_v, load_g)
ADDING(load_q)
ADDING(load_g)

// What is known of four queries.
struct Known { vec4 top, total, mean; ivec4 sees; };

Known known_of(ivec3 at, int first) {
    Known those;
    [[unroll]] for (int j = 0; j < 4; ++j) {
        ivec3 one = ivec3(at.xy, min(first + j, push.queries - 1));
        vec3 of_one = statistics(row_of(one));
        those.top[j] = of_one.x;
        those.total[j] = of_one.y;
        those.mean[j] = of_one.z;
        those.sees[j] = first + j < push.queries ? seen(one) : 0;
    }
    return those;
}

// From products to weights and slopes, of a key and four queries.
void weigh(inout vec4 s, inout vec4 r, Known those, ivec3 at, int first, int key, int last) {
    [[unroll]] for (int j = 0; j < 4; ++j) {
        float score = s[j] * push.scale;
        if (push.mask >= 0)
            score = masked(score, ivec3(at.xy, min(first + j, push.queries - 1)), min(key, last));
        s[j] = key < those.sees[j] ? math_exp(score - those.top[j]) * those.total[j] : 0.0;
        r[j] = s[j] == 0.0 ? 0.0 : s[j] * (r[j] - those.mean[j]) * push.scale;
    }
}

void work(ivec3 at) {
    int row = (at.x * (push.heads / push.share) + at.y) * push.keys + at.z, rows = push.keys - at.z;
    int from_k = ROW(k, at), from_v = ROW(v, at);
    EACH_COLUMN(NO_SUM)
#define NO_OTHER(c) Tile other##c = NOTHING;
    EACH_COLUMN(NO_OTHER)
    for (int own = 0; own < push.share; ++own)
        for (int first = 0; first < push.queries; first += SIDE) {
            ivec3 those = ivec3(at.x, at.y * push.share + own, first);
            if (sees_most(those) <= at.z) continue;
            int left = push.queries - first, from_q = ROW(q, those), from_g = ROW(g, those);
            Tile s = scores(from_k, push.k_step[2], rows, from_q, push.q_step[2], left, push.width);
            Tile r = outer_products(from_v, push.v_step[2], rows, from_g, push.g_step[2], left, push.values);
            Known found = known_of(those, first + mine().x);
#define WEIGH(i) \
    weigh(s.row##i, r.row##i, found, those, first + mine().x, at.z + mine().y + i, push.keys - 1);
            EACH_ROW(WEIGH)
            keep(s);
#define ADD_G(c) add_load_g(other##c, from_g, push.g_step[2], left, c, push.values);
            EACH_COLUMN(ADD_G)
            keep(r);
#define ADD_Q(c) add_load_q(sum##c, from_q, push.q_step[2], left, c, push.width);
            EACH_COLUMN(ADD_Q)
        }
    int dk = push.to + (all_queries() + row) * push.width;
    int dv = push.to + (all_queries() + all_keys()) * push.width + row * push.values;
#define WRITE(c) write(sum##c, dk, rows, c, push.width); write(other##c, dv, rows, c, push.values);
    EACH_COLUMN(WRITE)
}
#define HEADS (push.heads / push.share)
#define ROWS push.keys

#else
TIMES(scores, load_q, load_k)
TIMES(outer_products, load_g, load_v)
ADDING(load_k)

// Of a query and four keys: statistics go on, or products become slopes.
void weigh(vec4 s, inout vec4 r, inout float top, inout float total, inout float sum_r, ivec3 one, int key,
           int end) {
    int sees = seen(one);
    float above = top;
    s *= push.scale;
    [[unroll]] for (int j = 0; j < 4; ++j) {
        if (push.mask >= 0) s[j] = masked(s[j], one, min(key + j, end - 1));
        if (key + j >= sees) s[j] = -INFINITY;
        above = higher(above, s[j]);
    }
#if PASS == STATISTICS
    float shrunk = math_exp(top - shift_of(above));
    total *= shrunk;
    sum_r *= shrunk;
    top = above;
    [[unroll]] for (int j = 0; j < 4; ++j) {
        float p = math_exp(s[j] - shift_of(above));
        total += p;
        sum_r += p == 0.0 ? 0.0 : p * r[j];
    }
#else
    [[unroll]] for (int j = 0; j < 4; ++j) {
        float p = math_exp(s[j] - top) * total;
        r[j] = p == 0.0 ? 0.0 : p * (r[j] - sum_r) * push.scale;
    }
#endif
}

void work(ivec3 at) {
    ivec3 head = shared_head(at);
    int end = sees_most(at), rows = push.queries - at.z, from_k = ROW(k, head), from_v = ROW(v, head);
    vec4 top, total, sum_r;
    [[unroll]] for (int i = 0; i < 4; ++i) {
        vec3 sums = PASS == STATISTICS ? vec3(-INFINITY, 0.0, 0.0) : statistics(row_of(query_of(at, i)));
        top[i] = sums.x;
        total[i] = sums.y;
        sum_r[i] = sums.z;
    }
#if PASS == OF_QUERIES
    EACH_COLUMN(NO_SUM)
#endif
    for (int first = 0; first < end; first += SIDE) {
        int left = end - first;
        int some_k = from_k + first * push.k_step[2], some_v = from_v + first * push.v_step[2];
        Tile s = scores(ROW(q, at), push.q_step[2], rows, some_k, push.k_step[2], left, push.width);
        Tile r = outer_products(ROW(g, at), push.g_step[2], rows, some_v, push.v_step[2], left, push.values);
#define WEIGH(i) \
    weigh(s.row##i, r.row##i, top[i], total[i], sum_r[i], query_of(at, i), first + mine().x, end);
        EACH_ROW(WEIGH)
#if PASS == OF_QUERIES
        keep(r);
#define ADD(c) add_load_k(sum##c, some_k, push.k_step[2], left, c, push.width);
        EACH_COLUMN(ADD)
#endif
    }
#if PASS == OF_QUERIES
#define WRITE(c) write(sum##c, push.to + row_of(at) * push.width, rows, c, push.width);
    EACH_COLUMN(WRITE)
#else
    // The lane of a row joins what those across found, each with its own largest score.
    vec3 sums = vec3(-INFINITY, 0.0, 0.0);
    meet(top);
    if (lane() < SIDE)
        for (int j = 0; j < ACROSS; ++j) sums.x = higher(sums.x, met(j));
    kept[lane()] = vec4(sums, 0.0);
    barrier();
    [[unroll]] for (int i = 0; i < 4; ++i) {
        float shrunk = math_exp(top[i] - shift_of(kept[mine().y + i].x));
        total[i] *= shrunk;
        sum_r[i] *= shrunk;
    }
    meet(total);
    if (lane() < SIDE)
        for (int j = 0; j < ACROSS; ++j) sums.y += met(j);
    meet(sum_r);
    if (lane() < SIDE) {
        for (int j = 0; j < ACROSS; ++j) sums.z += met(j);
        if (lane() < rows)
            [[unroll]] for (int j = 0; j < 3; ++j) known[push.more + (row_of(at) + lane()) * 3 + j] = sums[j];
    }
    barrier();
#endif
}
#define HEADS push.heads
#define ROWS push.queries
#endif

void main() {
    int down = (ROWS + SIDE - 1) / SIDE, heads = push.batch * HEADS;
    for (int i = int(gl_WorkGroupID.x); i < down * heads; i += int(gl_NumWorkGroups.x)) {
        int tile = PASS == OF_KEYS ? i / heads : down - 1 - i / heads, head = i % heads;
        work(ivec3(head / HEADS, head % HEADS, tile * SIDE));
    }
}
#endif
