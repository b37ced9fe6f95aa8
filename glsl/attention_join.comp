#version 450
#extension GL_GOOGLE_include_directive : require
// Joins what attention.comp found of parts of the keys, always in the same order.
#include "grid.glsl"
#include "math.glsl"

layout(binding = 0) writeonly buffer To { float to[]; };
layout(binding = 1) readonly buffer Parts { float parts[]; };

layout(push_constant) uniform Push { uint count; int to, from, parts, values; } push;

void main() {
    EACH(i, push.count) {
        int row = int(i) / push.values, e = int(i) - row * push.values, pitch = push.values + 2;
        int first = push.from + row * push.parts * pitch, last = first + push.parts * pitch;
        float top = -INFINITY, total = 0.0, sum = 0.0;
        for (int at = first; at < last; at += pitch) {
            float other = parts[at];
            top = is_nan(top) ? top : is_nan(other) ? other : max(top, other);
        }
        top = top == -INFINITY ? 0.0 : top;
        for (int at = first; at < last; at += pitch) {
            float share = math_exp(parts[at] - top);
            total += share * parts[at + 1];
            sum += share * parts[at + 2 + e];
        }
        to[push.to + int(i)] = total == 0.0 ? 0.0 : sum / total;
    }
}
