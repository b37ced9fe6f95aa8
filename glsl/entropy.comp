#version 450
#extension GL_GOOGLE_include_directive : require
// Cross-entropy of rows of logits with classes; see tinyadept/ops/entropy.py. A workgroup takes a row.
//   -DOP_cross_entropy         the loss of each row
//   -DOP_cross_entropy_input   its gradient
#define STATUS 4
#include "math.glsl"
#include "status.glsl"

layout(local_size_x_id = 0) in;

layout(binding = 0) writeonly buffer To { float to[]; };
layout(binding = 1) readonly buffer Logits { float logits[]; };
layout(binding = 2) readonly buffer Labels { int labels[]; };
layout(binding = 3) readonly buffer G { float g[]; };  // the logits again where there is none

layout(push_constant) uniform Push {
    int rows, classes;
    int to_offset;
    int logits_offset, logits_row, logits_class;
    int labels_offset, labels_row, g_offset, g_row;
    int ignored;
    float smoothing;
    uint site;
} push;

const int LANES = int(gl_WorkGroupSize.x);

// Sums as pairs: what is lost in rounding is kept apart.
struct Fold { float top; vec2 total, plain; };
shared Fold meeting[gl_WorkGroupSize.x];

vec2 with(vec2 sum, float x) {
    vec2 next = two_sum(sum.x, x);
    return vec2(next.x, sum.y + next.y);
}

float larger(float a, float b) { return is_nan(a) || a > b ? a : b; }

// exp(x - top), which is 1 also where both are the same infinity.
float part(float x, float top) { return x == top ? 1.0 : math_exp(x - top); }

Fold row_fold(int start) {
    int lane = int(gl_LocalInvocationID.x);
    Fold f = Fold(-INFINITY, vec2(0.0), vec2(0.0));
    for (int i = lane; i < push.classes; i += LANES) f.top = larger(logits[start + i * push.logits_class], f.top);
    meeting[lane].top = f.top;
    barrier();
    for (int i = 0; i < LANES; ++i) f.top = larger(meeting[i].top, f.top);
    for (int i = lane; i < push.classes; i += LANES) {
        float x = logits[start + i * push.logits_class];
        f.total = with(f.total, part(x, f.top));
        f.plain = with(f.plain, x - f.top);
    }
    barrier();
    meeting[lane] = f;
    barrier();
    f.total = f.plain = vec2(0.0);
    for (int i = 0; i < LANES; ++i) {
        f.total = with(f.total, meeting[i].total.x);
        f.plain = with(f.plain, meeting[i].plain.x);
        f.total.y += meeting[i].total.y;
        f.plain.y += meeting[i].plain.y;
    }
    return f;
}

void main() {
    for (int row = int(gl_WorkGroupID.x); row < push.rows; row += int(gl_NumWorkGroups.x)) {
        int start = push.logits_offset + row * push.logits_row, label = labels[push.labels_offset + row * push.labels_row];
        bool counts = label != push.ignored;
        if (counts && (label < 0 || label >= push.classes)) {
            if (gl_LocalInvocationID.x == 0u) report(push.site, label, push.classes);
            counts = false;
        }
        Fold f = row_fold(start);
        float total = f.total.x + f.total.y;
#ifdef OP_cross_entropy
        if (gl_LocalInvocationID.x == 0u) {
            float apart = counts ? logits[start + label * push.logits_class] - f.top : 0.0;
            float wanted = (1.0 - push.smoothing) * apart;
            if (push.smoothing != 0.0)
                wanted += push.smoothing * ((f.plain.x + f.plain.y) / float(push.classes));
            to[push.to_offset + row] = counts ? math_log(total) - wanted : 0.0;
        }
#else
        float scale = counts ? g[push.g_offset + row * push.g_row] : 0.0;
        for (int i = int(gl_LocalInvocationID.x); i < push.classes; i += LANES) {
            float share = part(logits[start + i * push.logits_class], f.top) / total;
            share -= push.smoothing / float(push.classes);
            if (i == label) share -= 1.0 - push.smoothing;
            to[push.to_offset + row * push.classes + i] = counts ? share * scale : 0.0;
        }
#endif
        barrier();  // the next row's tops overwrite what was read here
    }
}
