#version 450
#extension GL_GOOGLE_include_directive : require
// Writes one word to every element of a strided view.
#define VIEWS 1
#define PARAMS uint word;
#include "grid.glsl"
#include "view.glsl"

layout(binding = 0) writeonly buffer To { uint to[]; };

void main() {
    EACH(i, push.count) to[cell(0, i)] = push.word;
}
