// The rules of tinyadept/ops/update.py: p and its states from their old values, the gradient and the numbers of
// the step, which come in the order in which the rule there names them.

float decayed(float p, float g, float decay) { return decay == 0.0 ? g : g + decay * p; }

#if STATES == 0
void op_sgd(inout float p, float g, inout float s[1]) { p -= number(0) * decayed(p, g, number(1)); }

void op_ema(inout float p, float g, inout float s[1]) { p = number(0) * p + number(1) * g; }
#endif

#if STATES == 1
void op_sgd_momentum(inout float p, float g, inout float s[2]) {
    g = decayed(p, g, number(1));
    s[0] = number(2) * s[0] + number(3) * g;
    p -= number(0) * (number(4) != 0.0 ? g + number(2) * s[0] : s[0]);
}
#endif

#if STATES == 2
void op_adam(inout float p, float g, inout float s[3]) {
    g = decayed(p, g, number(2));
    s[0] = number(4) * s[0] + number(5) * g;
    s[1] = number(6) * s[1] + number(7) * (g * g);
    p = number(3) * p - number(0) * s[0] / (sqrt(s[1]) + number(1));
}
#endif

#if STATES > 0
// g over the root of a running mean of its squares; the state `mean`, if there is one, is its running mean.
float scaled(float g, float square, float mean) {
    return g / (sqrt(square - mean * mean) + number(2));
}

void track(inout float mean, float x) { mean = number(3) * mean + number(4) * x; }
#endif

#if STATES == 1
void op_rmsprop(inout float p, float g, inout float s[2]) {
    g = decayed(p, g, number(1));
    track(s[0], g * g);
    p -= number(0) * scaled(g, s[0], 0.0);
}
#endif

#if STATES == 2
void op_rmsprop_momentum(inout float p, float g, inout float s[3]) {
    g = decayed(p, g, number(1));
    track(s[0], g * g);
    s[1] = number(5) * s[1] + scaled(g, s[0], 0.0);
    p -= number(0) * s[1];
}

void op_rmsprop_centered(inout float p, float g, inout float s[3]) {
    g = decayed(p, g, number(1));
    track(s[0], g * g);
    track(s[1], g);
    p -= number(0) * scaled(g, s[0], s[1]);
}
#endif

#if STATES == 3
void op_rmsprop_centered_momentum(inout float p, float g, inout float s[4]) {
    g = decayed(p, g, number(1));
    track(s[0], g * g);
    track(s[1], g);
    s[2] = number(5) * s[2] + scaled(g, s[0], s[1]);
    p -= number(0) * s[2];
}
#endif
