// FOLD_LANES lanes of a workgroup share a fold, and meet in shared memory. The template defines FOLD_LANES,
// BESIDE and State before it includes this.
//   BESIDE 1: neighbouring lanes have neighbouring folds;  0: they share one

const int FOLDS = int(gl_WorkGroupSize.x) / FOLD_LANES;  // of a workgroup

shared State meeting[gl_WorkGroupSize.x];

int fold_lane() {
    int lane = int(gl_LocalInvocationID.x);
    return BESIDE == 1 ? lane / FOLDS : lane % FOLD_LANES;
}

int own_fold() {
    int lane = int(gl_LocalInvocationID.x);
    return BESIDE == 1 ? lane % FOLDS : lane / FOLD_LANES;
}

// What the lanes of a fold hold together; only the first of them gets it.
State joined(State s) {
    if (FOLD_LANES == 1) return s;
    int lane = fold_lane(), fold = own_fold(), own = lane * FOLDS + fold;
    barrier();  // the last round has been read
    meeting[own] = s;
    for (int width = FOLD_LANES; width > 1;) {
        int next = (width + 3) / 4;
        barrier();
        if (lane < next) {
            for (int other = lane + next; other < width; other += next)
                s = merged(s, meeting[other * FOLDS + fold]);
            meeting[own] = s;
        }
        width = next;
    }
    return s;
}

// The same for all of them.
State shared_out(State s) {
    if (FOLD_LANES == 1) return s;
    joined(s);
    barrier();
    return meeting[own_fold()];
}
