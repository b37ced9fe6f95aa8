#version 450
#extension GL_GOOGLE_include_directive : require
// Pairs of elements turned by angles that a table has for each position: rows of cosines, then sines. The
// result is dense; what lies behind the pairs is copied. An element's partner lies beside it, or as far away
// as there are pairs.
#define STATUS 4
#include "grid.glsl"
#include "status.glsl"

layout(constant_id = 1) const bool INTERLEAVED = false;
layout(constant_id = 2) const bool INVERSE = false;

layout(push_constant) uniform Push {
    uint count;
    int heads, rows, width, pairs, known;  // known: positions of the table
    int to, x, x_step[4];
    int table, table_step[2];
    int positions, positions_step[2];
    uint site;
} push;

layout(binding = 0) writeonly buffer To { float to[]; };
layout(binding = 1) readonly buffer X { float x[]; };
layout(binding = 2) readonly buffer Table { float table[]; };
layout(binding = 3) readonly buffer Positions { int positions[]; };

void main() {
    EACH(i, push.count) {
        int row = int(i) / push.width, d = int(i) - row * push.width, head = row / push.rows;
        int b = head / push.heads, t = row - head * push.rows;
        int h = head - b * push.heads;
        int from = push.x + b * push.x_step[0] + h * push.x_step[1] + t * push.x_step[2];
        int position = positions[push.positions + b * push.positions_step[0] + t * push.positions_step[1]];
        float result = x[from + d * push.x_step[3]];
        if (position < 0 || position >= push.known) {
            report(push.site, position, push.known);
        } else if (d < 2 * push.pairs) {
            int pair = INTERLEAVED ? d / 2 : d % push.pairs, first = INTERLEAVED ? d - d % 2 : pair;
            bool second = d != first;
            int other = second ? first : INTERLEAVED ? d + 1 : d + push.pairs;
            int angle = push.table + position * push.table_step[0];
            float cosine = table[angle + pair * push.table_step[1]];
            float sine = table[angle + (push.pairs + pair) * push.table_step[1]];
            float partner = x[from + other * push.x_step[3]] * sine;
            result = second != INVERSE ? result * cosine + partner : result * cosine - partner;
        }
        to[push.to + int(i)] = result;
    }
}
