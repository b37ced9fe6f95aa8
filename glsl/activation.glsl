// What the kernel of a product makes of a result as it writes it: with -DACTIVATED=1 a row of elementwise.glsl, by
// the number that it has in tinyadept/ops/activation.py. Of floats alone.
//
// Before including, a template defines ACTIVATION_ID, the number of the specialisation constant.
#if ACTIVATED
#define T float
#define FLOATING 1
#include "elementwise.glsl"

layout(constant_id = ACTIVATION_ID) const uint ACTIVATION = 0;

float activated(float v) {
    switch (ACTIVATION) {
    case 1: return op_relu(v);
    case 2: return op_silu(v);
    case 3: return op_gelu(v);
    case 4: return op_gelu_tanh(v);
    case 5: return op_sigmoid(v);
    case 6: return op_tanh(v);
    }
    return v;
}

vec4 activated(vec4 v) { return vec4(activated(v.x), activated(v.y), activated(v.z), activated(v.w)); }
#else
#define activated(v) (v)
#endif
