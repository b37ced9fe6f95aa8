#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
// Attention: softmax of (q · scale) @ kᵀ + mask, times v, without the scores in memory. The softmax is found
// while keys pass by: sums are scaled down when a larger score comes (Milakov and Gimelshein, Online
// normalizer calculation for softmax, 2018).
//
//   -DBODY=LANES  for CPU drivers, and for wide rows: a lane a query and part of the keys
//   -DBODY=TEAM   for few queries: a workgroup a query and part of the keys, of PART at most 1024
//   -DBODY=TILES  for many queries: a workgroup 64 queries of a head, 64 keys at a time,
//                 -DCOLUMNS=1, 2 or 4 times 64 columns of values
// Where the keys are cut into parts, each leaves its largest score, the sum of exponentials and its result,
// which attention_join.comp joins.
#define LANES 0
#define TEAM 1
#define TILES 2
#include "attention.glsl"

int parts() { return (push.keys - 1) / PART + 1; }

// Where the results of a part lie.
int target(int row, int part) {
    if (parts() == 1) return push.to + row * push.values;
    return push.to + (row * parts() + part) * (push.values + 2) + 2;
}

float share_of(float total) { return parts() > 1 || total == 0.0 ? 1.0 : 1.0 / total; }

void note(int at, float top, float total) {
    if (parts() == 1) return;
    to[at - 2] = top;
    to[at - 1] = total;
}

#if BODY == LANES
layout(local_size_x_id = 0) in;
const int CHUNK = 16;  // keys at a time

void attend(int row, int part) {
    ivec3 at = place(row), head = shared_head(at);
    int from_q = ROW(q, at), from_k = ROW(k, head), from_v = ROW(v, head), result = target(row, part);
    int last = min(seen(at), (part + 1) * PART);
    float top = -INFINITY, total = 0.0, s[CHUNK];
    for (int e = 0; e < push.values; ++e) to[result + e] = 0.0;
    for (int first = part * PART; first < last; first += CHUNK) {
        int key[CHUNK];
        [[unroll]] for (int j = 0; j < CHUNK; ++j) {
            s[j] = 0.0;
            key[j] = from_k + min(first + j, last - 1) * push.k_step[2];
        }
        for (int d = 0; d < push.width; ++d) {
            float x = q[from_q + d] * push.scale;
            [[unroll]] for (int j = 0; j < CHUNK; ++j) s[j] += x * k[key[j] + d];
        }
        float above = top;
        [[unroll]] for (int j = 0; j < CHUNK; ++j) {
            s[j] = first + j < last ? masked(s[j], at, min(first + j, last - 1)) : -INFINITY;
            above = higher(above, s[j]);
            key[j] = from_v + min(first + j, last - 1) * push.v_step[2];
        }
        float shrunk = math_exp(top - shift_of(above));
        top = above;
        total *= shrunk;
        [[unroll]] for (int j = 0; j < CHUNK; ++j) {
            s[j] = math_exp(s[j] - shift_of(top));
            total += s[j];
        }
        for (int e = 0; e < push.values; ++e) {
            float sum = to[result + e] * shrunk;
            [[unroll]] for (int j = 0; j < CHUNK; ++j) sum += first + j < last ? s[j] * v[key[j] + e] : 0.0;
            to[result + e] = sum;
        }
    }
    note(result, top, total);
    for (int e = 0; e < push.values; ++e) to[result + e] *= share_of(total);
}

void main() {
    int count = push.batch * push.heads * push.queries * parts();
    int lanes = int(gl_NumWorkGroups.x * gl_WorkGroupSize.x);
    for (int i = int(gl_GlobalInvocationID.x); i < count; i += lanes) attend(i / parts(), i % parts());
}

#elif BODY == TEAM
layout(local_size_x = 256) in;
const int MEMBERS = 256, LONGEST = 1024;

shared vec4 query[64];
shared float weights[LONGEST];
shared vec4 meeting[MEMBERS];

int lane() { return int(gl_LocalInvocationIndex); }

float largest(float x) {
    barrier();
    meeting[lane()].x = x;
    for (int width = MEMBERS / 4; width > 0; width /= 4) {
        barrier();
        if (lane() < width) {
            [[unroll]] for (int j = 1; j < 4; ++j) x = higher(x, meeting[lane() + j * width].x);
            meeting[lane()].x = x;
        }
    }
    barrier();
    return meeting[0].x;
}

float sum_of(float x) {
    barrier();
    meeting[lane()].x = x;
    for (int width = MEMBERS / 4; width > 0; width /= 4) {
        barrier();
        if (lane() < width) {
            [[unroll]] for (int j = 1; j < 4; ++j) x += meeting[lane() + j * width].x;
            meeting[lane()].x = x;
        }
    }
    barrier();
    return meeting[0].x;
}

float score(int from, int fours) {
    vec4 sum = vec4(0.0);
    for (int d = 0; d < fours; ++d) sum += query[d] * load_k(from + 4 * d, push.width - 4 * d);
    return (sum.x + sum.y) + (sum.z + sum.w);
}

void attend(int row, int part) {
    ivec3 at = place(row), head = shared_head(at);
    int first = part * PART, count = max(0, min(seen(at), first + PART) - first), result = target(row, part);
    int fours = (push.width + 3) / 4, columns = max(1, (push.values + 3) / 4), teams = MEMBERS / columns;
    barrier();
    for (int d = lane(); d < fours; d += MEMBERS)
        query[d] = load_q(ROW(q, at) + 4 * d, push.width - 4 * d) * push.scale;
    barrier();
    float top = -INFINITY;
    for (int j = lane(); j < count; j += MEMBERS) {
        float s = masked(score(ROW(k, head) + (first + j) * push.k_step[2], fours), at, first + j);
        weights[j] = s;
        top = higher(top, s);
    }
    top = largest(top);
    float total = 0.0;
    for (int j = lane(); j < count; j += MEMBERS) {
        float p = math_exp(weights[j] - shift_of(top));
        weights[j] = p;
        total += p;
    }
    total = sum_of(total);
    int e = lane() % columns * 4, team = lane() / columns;
    vec4 sum = vec4(0.0);
    if (team < teams)
        for (int j = team; j < count; j += teams)
            sum += weights[j] * load_v(ROW(v, head) + (first + j) * push.v_step[2] + e, push.values - e);
    barrier();
    meeting[lane()] = sum;
    barrier();
    if (lane() < columns) {
        for (int other = 1; other < teams; ++other) sum += meeting[lane() + other * columns];
        [[unroll]] for (int j = 0; j < 4; ++j)
            if (e + j < push.values) to[result + e + j] = sum[j] * share_of(total);
        if (lane() == 0) note(result, top, total);
    }
}

void main() {
    int count = push.batch * push.heads * push.queries * parts();
    for (int i = int(gl_WorkGroupID.x); i < count; i += int(gl_NumWorkGroups.x))
        attend(i / parts(), i % parts());
}

#else
#include "attention_tiles.glsl"

shared float tops[SIDE], shrinking[SIDE];

TIMES(scores, load_q, load_k)
ADDING(load_v)

// Scores of a query and four keys, and the largest of them.
float look(inout vec4 s, ivec3 one, int key, int end) {
    int sees = seen(one);
    float top = -INFINITY;
    s *= push.scale;
    [[unroll]] for (int j = 0; j < 4; ++j) {
        if (push.mask >= 0) s[j] = masked(s[j], one, min(key + j, end - 1));
        if (key + j >= sees) s[j] = -INFINITY;
        top = higher(top, s[j]);
    }
    return top;
}

// Weights of them, and their sum.
float weigh(inout vec4 s, float shift) {
    [[unroll]] for (int j = 0; j < 4; ++j) s[j] = math_exp(s[j] - shift);
    return (s.x + s.y) + (s.z + s.w);
}

void attend(ivec3 at) {
    ivec3 head = shared_head(at);
    int end = sees_most(at), rows = push.queries - at.z, from_k = ROW(k, head), from_v = ROW(v, head);
    if (lane() < SIDE) tops[lane()] = -INFINITY;
    vec4 total = vec4(0.0), above, shrunk;
    EACH_COLUMN(NO_SUM)
    for (int first = 0; first < end; first += SIDE) {
        int left = end - first;
        int some_k = from_k + first * push.k_step[2], some_v = from_v + first * push.v_step[2];
        Tile s = scores(ROW(q, at), push.q_step[2], rows, some_k, push.k_step[2], left, push.width);
#define LOOK(i) above[i] = look(s.row##i, query_of(at, i), first + mine().x, end);
        EACH_ROW(LOOK)
        meet(above);
        if (lane() < SIDE) {
            float top = tops[lane()];
            for (int j = 0; j < ACROSS; ++j) top = higher(top, met(j));
            shrinking[lane()] = math_exp(tops[lane()] - shift_of(top));
            tops[lane()] = top;
        }
        barrier();
#define WEIGH(i) \
    shrunk[i] = shrinking[mine().y + i]; \
    total[i] = total[i] * shrunk[i] + weigh(s.row##i, shift_of(tops[mine().y + i]));
        EACH_ROW(WEIGH)
        keep(s);
#define SHRINK_ROW(c, i) sum##c.row##i *= shrunk[i];
#define SHRINK(c) SHRINK_ROW(c, 0) SHRINK_ROW(c, 1) SHRINK_ROW(c, 2) SHRINK_ROW(c, 3)
        EACH_COLUMN(SHRINK)
#define ADD(c) add_load_v(sum##c, some_v, push.v_step[2], left, c, push.values);
        EACH_COLUMN(ADD)
    }
    meet(total);
    if (lane() < SIDE) {
        float all = 0.0;
        for (int j = 0; j < ACROSS; ++j) all += met(j);
        shrinking[lane()] = share_of(all);
    }
    barrier();
#define LAST(i) shrunk[i] = shrinking[mine().y + i];
    EACH_ROW(LAST)
    EACH_COLUMN(SHRINK)
    int result = push.to + ((at.x * push.heads + at.y) * push.queries + at.z) * push.values;
#define WRITE(c) write(sum##c, result, rows, c, push.values);
    EACH_COLUMN(WRITE)
    barrier();
}

// Tiles whose queries see most come first, so that the last ones are quick.
void main() {
    int down = (push.queries + SIDE - 1) / SIDE, heads = push.batch * push.heads;
    for (int i = int(gl_WorkGroupID.x); i < down * heads; i += int(gl_NumWorkGroups.x)) {
        int tile = down - 1 - i / heads, head = i % heads;
        attend(ivec3(head / push.heads, head % push.heads, tile * SIDE));
    }
}
#endif
