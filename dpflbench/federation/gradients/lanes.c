/* Convolutions, group norms, ReLUs and 2x2 max pools of a vector of samples at a time, each sample in a lane of its own.

Arrays of lanes are [channels][height][width], a vector a place. Nothing is computed across lanes: the only thing that
happens between them is the transposition that brings samples in and out. So a sample's numbers are the same bits
whatever stands beside it, and gradients by the weights sample by sample cost no more than their sum over the batch.

Accumulators stay in registers: a tile has OUTPUTS x columns of them, at most TILE. */

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#ifdef __AVX512F__
enum { LANES = 16, OUTPUTS = 8, TILE = 24 };
#else
enum { LANES = 8, OUTPUTS = 4, TILE = 12 };
#endif
enum { CONVOLUTION, NORM, POOL, RELU };

typedef float Vector __attribute__((vector_size(4 * LANES)));
typedef int32_t Mask __attribute__((vector_size(4 * LANES)));
#define INLINE static inline __attribute__((always_inline))

INLINE Mask choose(Mask which, Mask a, Mask b) { return (a & which) | (b & ~which); }
INLINE Vector pick(Mask which, Vector a, Vector b) { return (Vector)choose(which, (Mask)a, (Mask)b); }

typedef struct {
    int32_t kind;
    int32_t c, h, w;                /* what comes in */
    int32_t oc, oh, ow;             /* what goes out */
    int32_t k, ph, pw;              /* of a convolution: its square kernel, and zeros around the map */
    int32_t groups;                 /* of a norm */
    int32_t relu;                   /* of a pool: negative maxima become 0 */
    float eps;
    const float *weight, *bias;     /* as torch has them; bias may be null */
    float *by_weight, *by_bias;     /* gradients, a row a sample */
    int64_t kept;                   /* where a block keeps what the way back needs, in vectors */
} Layer;

typedef struct {
    Vector *from, *to, *padded, *rows;
    float **there, **back;          /* weights of convolutions as tiles read them, for outputs and for inputs */
    void *memory;
} Scratch;

int lanes(void) { return LANES; }

static int64_t inputs(const Layer *l) { return (int64_t)l->c * l->h * l->w; }
static int64_t outputs(const Layer *l) { return (int64_t)l->oc * l->oh * l->ow; }
static int64_t kernels(const Layer *l) { return l->kind == CONVOLUTION ? (int64_t)l->oc * l->c * l->k * l->k : 0; }
static int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }

/* ---- samples into lanes, and back ---- */

#if defined(__AVX512F__) && defined(__has_builtin)
#if __has_builtin(__builtin_shufflevector)
#define TURNS
/* 16 vectors as a matrix, transposed: pairs, fours, eights, halves */
INLINE void turn(Vector r[16]) {
    Vector t[16];
    for (int i = 0; i < 16; i += 2) {
        t[i] = __builtin_shufflevector(r[i], r[i + 1], 0, 16, 2, 18, 4, 20, 6, 22, 8, 24, 10, 26, 12, 28, 14, 30);
        t[i + 1] = __builtin_shufflevector(r[i], r[i + 1], 1, 17, 3, 19, 5, 21, 7, 23, 9, 25, 11, 27, 13, 29, 15, 31);
    }
    for (int j = 0; j < 16; j += 4)
        for (int i = j; i < j + 2; i++) {
            r[i] = __builtin_shufflevector(t[i], t[i + 2], 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29);
            r[i + 2] = __builtin_shufflevector(t[i], t[i + 2], 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31);
        }
    for (int j = 0; j < 16; j += 8)
        for (int i = j; i < j + 4; i++) {
            t[i] = __builtin_shufflevector(r[i], r[i + 4], 0, 1, 2, 3, 16, 17, 18, 19, 8, 9, 10, 11, 24, 25, 26, 27);
            t[i + 4] = __builtin_shufflevector(r[i], r[i + 4], 4, 5, 6, 7, 20, 21, 22, 23, 12, 13, 14, 15, 28, 29, 30, 31);
        }
    for (int i = 0; i < 8; i++) {
        r[i] = __builtin_shufflevector(t[i], t[i + 8], 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23);
        r[i + 8] = __builtin_shufflevector(t[i], t[i + 8], 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31);
    }
}
#endif
#endif

/* rows [samples][n] -> lanes [n]; lanes without a sample are 0 */
static void into_lanes(const float *rows, int64_t n, int samples, Vector *out) {
    int64_t j = 0;
#ifdef TURNS
    if (samples == LANES)
        for (; j + 16 <= n; j += 16) {
            Vector r[16];
            for (int l = 0; l < 16; l++) memcpy(&r[l], rows + l * n + j, sizeof(Vector));
            turn(r);
            for (int l = 0; l < 16; l++) out[j + l] = r[l];
        }
#endif
    for (; j < n; j++) {
        float values[LANES] = {0};
        for (int l = 0; l < samples; l++) values[l] = rows[l * n + j];
        memcpy(&out[j], values, sizeof(Vector));
    }
}

/* lanes [n] -> rows [samples][n] */
static void into_rows(const Vector *x, int64_t n, int samples, float *rows) {
    int64_t j = 0;
#ifdef TURNS
    if (samples == LANES)
        for (; j + 16 <= n; j += 16) {
            Vector r[16];
            for (int l = 0; l < 16; l++) r[l] = x[j + l];
            turn(r);
            for (int l = 0; l < 16; l++) memcpy(rows + l * n + j, &r[l], sizeof(Vector));
        }
#endif
    for (; j < n; j++) {
        float values[LANES];
        memcpy(values, &x[j], sizeof(Vector));
        for (int l = 0; l < samples; l++) rows[l * n + j] = values[l];
    }
}

/* [c][h][w] -> [c][h + 2 ph][w + 2 pw] with zeros around */
static void pad(const Vector *x, int c, int h, int w, int ph, int pw, Vector *out) {
    int height = h + 2 * ph, width = w + 2 * pw;
    if (ph || pw) memset(out, 0, sizeof(Vector) * (size_t)c * height * width);
    for (int i = 0; i < c; i++)
        for (int y = 0; y < h; y++)
            memcpy(out + ((int64_t)i * height + y + ph) * width + pw, x + ((int64_t)i * h + y) * w, sizeof(Vector) * w);
}

/* ---- convolutions ---- */

#define CHOOSE(n, F)                                                                                                   \
    switch (n) {                                                                                                       \
        case 1: F(1); break;                                                                                           \
        case 2: F(2); break;                                                                                           \
        case 3: F(3); break;                                                                                           \
        case 4: F(4); break;                                                                                           \
        case 5: F(5); break;                                                                                           \
        case 6: F(6); break;                                                                                           \
        case 7: F(7); break;                                                                                           \
        default: F(8);                                                                                                 \
    }

/* how many outputs a tile has, so that all have about as many */
static int share(int all, int limit) {
    int tiles = (all + limit - 1) / limit;
    return (all + tiles - 1) / tiles;
}

/* `columns` places of `n` outputs, from (y, x) on */
INLINE void tile(const Vector *a, const float *w, const float *bias, int c, int h, int width, const int k, const int n,
                 const int columns, int y, int x, Vector *out) {
    int padded = width + k - 1;
    Vector sums[8][24];
    for (int o = 0; o < n; o++)
        for (int q = 0; q < columns; q++) sums[o][q] = (Vector){0} + (bias ? bias[o] : 0.0f);
    for (int i = 0; i < c; i++)
        for (int r = 0; r < k; r++) {
            const Vector *row = a + ((int64_t)i * (h + k - 1) + y + r) * padded + x;
            for (int s = 0; s < k; s++, w += n)
                for (int q = 0; q < columns; q++)
                    for (int o = 0; o < n; o++) sums[o][q] += w[o] * row[s + q];
        }
    for (int o = 0; o < n; o++)
        for (int q = 0; q < columns; q++) out[((int64_t)o * h + y) * width + x + q] = sums[o][q];
}

INLINE void tiles(const Vector *a, const float *w, const float *bias, int c, int h, int width, const int k, const int n,
                  Vector *out) {
    const int columns = n <= 2 ? 6 : TILE / n;
    for (int y = 0; y < h; y++) {
        int x = 0;
        for (; x + columns <= width; x += columns) tile(a, w, bias, c, h, width, k, n, columns, y, x, out);
        for (; x < width; x++) tile(a, w, bias, c, h, width, k, n, 1, y, x, out);
    }
}

/* out [oc][h][w] of a [c][h + k - 1][w + k - 1] */
static void convolve(const Vector *a, const float *w, const float *bias, int oc, int c, int h, int width, int k, Vector *out) {
    int step = share(oc, OUTPUTS);
    for (int o = 0; o < oc; o += step) {
        int n = oc - o < step ? oc - o : step;
#define ONE(N) tiles(a, w, bias, c, h, width, 1, N, out)
#define THREE(N) tiles(a, w, bias, c, h, width, 3, N, out)
#define FIVE(N) tiles(a, w, bias, c, h, width, 5, N, out)
        if (k == 1) { CHOOSE(n, ONE) } else if (k == 3) { CHOOSE(n, THREE) } else { CHOOSE(n, FIVE) }
        w += (int64_t)n * c * k * k;
        out += (int64_t)n * h * width;
        if (bias) bias += n;
    }
}

/* weights as `convolve` reads them, [c][k][k][n] a tile; turned: those that lead from outputs back to inputs */
static void arrange(const Layer *l, int turned, float *out) {
    int k = l->k, oc = turned ? l->c : l->oc, c = turned ? l->oc : l->c, step = share(oc, OUTPUTS);
    for (int first = 0; first < oc; first += step)
        for (int i = 0; i < c; i++)
            for (int p = 0; p < k * k; p++)
                for (int o = first; o < oc && o < first + step; o++)
                    *out++ = turned ? l->weight[((int64_t)i * oc + o) * k * k + k * k - 1 - p]
                                    : l->weight[((int64_t)o * c + i) * k * k + p];
}

/* rows [n][c][k][k]: sums over the map of g [n][h][w] times a [c][h + k - 1][w + k - 1] */
INLINE void by_weights(const Vector *a, const Vector *g, int c, int h, int width, const int k, const int n, Vector *rows) {
    int padded = width + k - 1;
    for (int i = 0; i < c; i++)
        for (int r = 0; r < k; r++) {
            Vector sums[8][5];
            for (int o = 0; o < n; o++)
                for (int s = 0; s < k; s++) sums[o][s] = (Vector){0};
            for (int y = 0; y < h; y++) {
                const Vector *row = a + ((int64_t)i * (h + k - 1) + y + r) * padded, *up = g + (int64_t)y * width;
                for (int x = 0; x < width; x++)
                    for (int o = 0; o < n; o++)
                        for (int s = 0; s < k; s++) sums[o][s] += up[(int64_t)o * h * width + x] * row[x + s];
            }
            for (int o = 0; o < n; o++)
                for (int s = 0; s < k; s++) rows[(((int64_t)o * c + i) * k + r) * k + s] = sums[o][s];
        }
}

static void convolution_rows(const Layer *l, const Vector *a, const Vector *g, Vector *rows) {
    int k = l->k, c = l->c, h = l->oh, width = l->ow, step = share(l->oc, k == 5 ? TILE / 6 : OUTPUTS);
    for (int o = 0; o < l->oc; o += step) {
        int n = l->oc - o < step ? l->oc - o : step;
#define ONE_ROWS(N) by_weights(a, g, c, h, width, 1, N, rows)
#define THREE_ROWS(N) by_weights(a, g, c, h, width, 3, N, rows)
#define FIVE_ROWS(N) by_weights(a, g, c, h, width, 5, N, rows)
        if (k == 1) { CHOOSE(n, ONE_ROWS) } else if (k == 3) { CHOOSE(n, THREE_ROWS) } else { CHOOSE(n, FIVE_ROWS) }
        g += (int64_t)n * h * width;
        rows += (int64_t)n * c * k * k;
    }
}

/* sums of parts of sums: adding one by one, a large map would lose what single numbers bring */
enum { PART = 128 };

static Vector total(const Vector *x, int64_t n) {
    Vector sum = {0};
    for (int64_t at = 0; at < n; at += PART) {
        Vector part = {0};
        for (int64_t j = at; j < n && j < at + PART; j++) part += x[j];
        sum += part;
    }
    return sum;
}

/* ---- group norm; keeps what is normalised [c][h][w], then a deviation's inverse a group ---- */

static Vector inverse_root(Vector x) {
    float values[LANES];
    memcpy(values, &x, sizeof(Vector));
    for (int l = 0; l < LANES; l++) values[l] = 1.0f / __builtin_sqrtf(values[l]);
    memcpy(&x, values, sizeof(Vector));
    return x;
}

static void norm(const Layer *l, const Vector *x, Vector *kept, Vector *out) {
    int64_t map = (int64_t)l->h * l->w, size = map * (l->c / l->groups);
    for (int group = 0; group < l->groups; group++) {
        int64_t first = group * size;
        Vector mean = total(x + first, size) / (float)size;
        for (int64_t at = first; at < first + size; at++) {
            kept[at] = x[at] - mean;
            out[at] = kept[at] * kept[at];
        }
        Vector inverse = inverse_root(total(out + first, size) / (float)size + l->eps);
        kept[inputs(l) + group] = inverse;
        for (int64_t at = first; at < first + size; at++) {
            kept[at] *= inverse;
            out[at] = kept[at] * l->weight[at / map] + l->bias[at / map];
        }
    }
}

static void norm_back(const Layer *l, const Vector *g, const Vector *kept, Vector *rows, Vector *by_x) {
    int64_t map = (int64_t)l->h * l->w, channels = l->c / l->groups;
    for (int group = 0; group < l->groups; group++) {
        Vector sum = {0}, along = {0}, inverse = kept[inputs(l) + group];
        for (int64_t channel = group * channels; channel < (group + 1) * channels; channel++) {
            Vector by_weight = {0}, by_bias = {0};
            for (int64_t j = channel * map; j < (channel + 1) * map; j++) {
                by_weight += g[j] * kept[j];
                by_bias += g[j];
            }
            rows[channel] = by_weight;
            rows[l->c + channel] = by_bias;
            sum += by_bias * l->weight[channel];
            along += by_weight * l->weight[channel];
        }
        sum /= (float)(channels * map);
        along /= (float)(channels * map);
        for (int64_t channel = group * channels; channel < (group + 1) * channels; channel++)
            for (int64_t j = channel * map; j < (channel + 1) * map; j++)
                by_x[j] = inverse * (g[j] * l->weight[channel] - sum - kept[j] * along);
    }
}

/* ---- pool and ReLU; a pool keeps which of its four was the largest, -1 for none. Of equal numbers the first in reading order is the maximum, as in torch, and what is no number is larger than all ---- */

static void pool(const Layer *l, const Vector *x, Mask *kept, Vector *out) {
    const Vector zero = {0};
    for (int64_t row = 0; row < (int64_t)l->oc * l->oh; row++)
        for (int q = 0; q < l->ow; q++) {
            const Vector *at = x + 2 * row * l->w + 2 * q;
            Vector a = at[0], b = at[1], c = at[l->w], d = at[l->w + 1];
            Mask first = (a >= b) | (a != a), third = (c >= d) | (c != c);
            Vector above = pick(first, a, b), below = pick(third, c, d);
            Mask up = (above >= below) | (above != above), code = choose(up, 1 + first, 3 + third);
            Vector largest = pick(up, above, below);
            if (l->relu) {
                code = choose(largest <= zero, (Mask){0} - 1, code);
                largest = pick(largest < zero, zero, largest);
            }
            out[row * l->ow + q] = largest;
            kept[row * l->ow + q] = code;
        }
}

static void pool_back(const Layer *l, const Vector *g, const Mask *kept, Vector *by_x) {
    const Vector zero = {0};
    for (int64_t row = 0; row < (int64_t)l->oc * l->oh; row++)
        for (int q = 0; q < l->ow; q++) {
            Vector *at = by_x + 2 * row * l->w + 2 * q, up = g[row * l->ow + q];
            Mask code = kept[row * l->ow + q];
            at[0] = pick(code == 0, up, zero);
            at[1] = pick(code == 1, up, zero);
            at[l->w] = pick(code == 2, up, zero);
            at[l->w + 1] = pick(code == 3, up, zero);
        }
}

/* ---- layers in turn, a block of samples at a time ---- */

static int prepare(const Layer *layers, int n, Scratch *s) {
    int64_t largest = 0, padded = 0, rows = 0, weights = 0;
    for (const Layer *l = layers; l < layers + n; l++) {
        largest = most(largest, most(inputs(l), outputs(l)));
        rows = most(rows, most(kernels(l), 2 * l->c));
        weights += kernels(l);
        if (l->kind == CONVOLUTION) padded = most(padded, (int64_t)l->oc * (l->h + l->k - 1) * (l->w + l->k - 1));
    }
    size_t vectors = sizeof(Vector) * (2 * largest + padded + rows), pointers = 2 * n * sizeof(float *);
    size_t bytes = vectors + pointers + 2 * weights * sizeof(float);
    s->memory = aligned_alloc(64, (bytes + 63) / 64 * 64);
    if (!s->memory) return 1;
    s->from = s->memory;
    s->to = s->from + largest;
    s->padded = s->to + largest;
    s->rows = s->padded + padded;
    s->there = (float **)(s->rows + rows);
    s->back = s->there + n;
    float *at = (float *)(s->back + n);
    for (int i = 0; i < n; i++) {
        if (layers[i].kind != CONVOLUTION) continue;
        s->there[i] = at;
        s->back[i] = at + kernels(&layers[i]);
        arrange(&layers[i], 0, s->there[i]);
        arrange(&layers[i], 1, s->back[i]);
        at += 2 * kernels(&layers[i]);
    }
    return 0;
}

static void swap(Scratch *s) {
    Vector *from = s->from;
    s->from = s->to;
    s->to = from;
}

/* x [samples][...] -> out [samples][...]; kept has `stride` vectors a block, 0: one block's place serves all */
int forward(const Layer *layers, int n, const float *x, int64_t samples, float *out, Vector *kept, int64_t stride) {
    Scratch s;
    if (prepare(layers, n, &s)) return 1;
    int64_t in = inputs(layers), last = outputs(layers + n - 1);
    for (int64_t at = 0; at < samples; at += LANES, kept += stride) {
        int here = samples - at < LANES ? (int)(samples - at) : LANES;
        into_lanes(x + at * in, in, here, s.from);
        for (int i = 0; i < n; i++, swap(&s)) {
            const Layer *l = layers + i;
            Vector *own = kept + l->kept;
            if (l->kind == CONVOLUTION) {
                pad(s.from, l->c, l->h, l->w, l->ph, l->pw, own);
                convolve(own, s.there[i], l->bias, l->oc, l->c, l->oh, l->ow, l->k, s.to);
            } else if (l->kind == NORM) {
                norm(l, s.from, own, s.to);
            } else if (l->kind == POOL) {
                pool(l, s.from, (Mask *)own, s.to);
            } else {
                for (int64_t j = 0; j < inputs(l); j++) own[j] = s.to[j] = pick(s.from[j] < 0, (Vector){0}, s.from[j]);
            }
        }
        into_rows(s.from, last, here, out + at * last);
    }
    free(s.memory);
    return 0;
}

/* g [samples][...], the gradient by what came out -> gradients by weights, and by x unless that is null */
int backward(const Layer *layers, int n, const float *g, int64_t samples, float *by_x, const Vector *kept, int64_t stride) {
    Scratch s;
    if (prepare(layers, n, &s)) return 1;
    int64_t in = inputs(layers), last = outputs(layers + n - 1);
    for (int64_t at = 0; at < samples; at += LANES, kept += stride) {
        int here = samples - at < LANES ? (int)(samples - at) : LANES;
        into_lanes(g + at * last, last, here, s.from);
        for (int i = n - 1; i >= 0; i--, swap(&s)) {
            const Layer *l = layers + i;
            const Vector *own = kept + l->kept;
            if (l->kind == CONVOLUTION) {
                convolution_rows(l, own, s.from, s.rows);
                into_rows(s.rows, kernels(l), here, l->by_weight + at * kernels(l));
                if (l->by_bias) {
                    int64_t map = (int64_t)l->oh * l->ow;
                    for (int o = 0; o < l->oc; o++) s.rows[o] = total(s.from + o * map, map);
                    into_rows(s.rows, l->oc, here, l->by_bias + at * l->oc);
                }
                if (i == 0 && !by_x) break;
                pad(s.from, l->oc, l->oh, l->ow, l->k - 1 - l->ph, l->k - 1 - l->pw, s.padded);
                convolve(s.padded, s.back[i], 0, l->c, l->oc, l->h, l->w, l->k, s.to);
            } else if (l->kind == NORM) {
                norm_back(l, s.from, own, s.rows, s.to);
                into_rows(s.rows, l->c, here, l->by_weight + at * l->c);
                into_rows(s.rows + l->c, l->c, here, l->by_bias + at * l->c);
            } else if (l->kind == POOL) {
                pool_back(l, s.from, (const Mask *)own, s.to);
            } else {
                for (int64_t j = 0; j < inputs(l); j++) s.to[j] = pick(own[j] <= 0, (Vector){0}, s.from[j]);
            }
        }
        if (by_x) into_rows(s.from, in, here, by_x + at * in);
    }
    free(s.memory);
    return 0;
}
