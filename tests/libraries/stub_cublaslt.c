/* The functions of libcublasLt that gemmsim calls, with scripted answers, for machines without a GPU.
 *
 * It checks sizes of attributes and counts objects; products are of bfloat16 operands in row-major order. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef struct { uint64_t data[8]; } Algo;
typedef struct { Algo algo; size_t workspace; int state; float waves; int reserved[4]; } Result;
typedef struct { int kind, type, scale, transa, fast, order; uint64_t rows, columns, workspace; int64_t ld; } Object;

enum { SUCCESS = 0, INVALID = 7, NOT_SUPPORTED = 15 };

/* What tests set: answers, and the status of one function. */
long stub_config[9];
long stub_version = 130101, stub_count = 1, stub_state = 0, stub_workspace = 0, stub_short_attribute = -1;
long stub_failing = 0, stub_status = 0; /* which function, by the numbers below */
enum { CREATE = 1, DESC, LAYOUT, PREFERENCE, SET, HEURISTIC, GET, INIT, CONFIGURE, CHECK, MATMUL };

/* What tests read. */
long stub_alive = 0, stub_heuristics = 0, stub_products = 0;
Object stub_desc, stub_a, stub_b, stub_d;
uint64_t stub_allowed;
long stub_asked[9];

static int status(int function) { return stub_failing == function ? (int)stub_status : SUCCESS; }

static int make(void **made, Object one, int function) {
  int found = status(function);
  if (found) return found;
  *made = malloc(sizeof(Object));
  memcpy(*made, &one, sizeof(Object));
  ++stub_alive;
  return SUCCESS;
}

static int destroy(void *object) {
  free(object);
  --stub_alive;
  return SUCCESS;
}

size_t cublasLtGetVersion(void) { return (size_t)stub_version; }
int cublasLtCreate(void **handle) {
  static int one;
  *handle = &one;
  return status(CREATE);
}

int cublasLtMatmulDescCreate(void **made, int compute, int scale) {
  Object one = {.kind = DESC, .type = compute, .scale = scale};
  return make(made, one, DESC);
}
int cublasLtMatmulDescDestroy(void *object) { return destroy(object); }
int cublasLtMatmulDescSetAttribute(void *object, int attribute, const void *value, size_t size) {
  Object *one = object;
  if (one->kind != DESC) return INVALID;
  if (attribute == 3 && size == 4) one->transa = *(const int32_t *)value;
  else if (attribute == 25 && size == 1) one->fast = *(const int8_t *)value;
  else return INVALID;
  return status(SET);
}

int cublasLtMatrixLayoutCreate(void **made, int type, uint64_t rows, uint64_t columns, int64_t ld) {
  Object one = {.kind = LAYOUT, .type = type, .rows = rows, .columns = columns, .ld = ld};
  return make(made, one, LAYOUT);
}
int cublasLtMatrixLayoutDestroy(void *object) { return destroy(object); }
int cublasLtMatrixLayoutSetAttribute(void *object, int attribute, const void *value, size_t size) {
  Object *one = object;
  if (one->kind != LAYOUT || attribute != 1 || size != 4) return INVALID;
  one->order = *(const int32_t *)value;
  return status(SET);
}

int cublasLtMatmulPreferenceCreate(void **made) {
  Object one = {.kind = PREFERENCE};
  return make(made, one, PREFERENCE);
}
int cublasLtMatmulPreferenceDestroy(void *object) { return destroy(object); }
int cublasLtMatmulPreferenceSetAttribute(void *object, int attribute, const void *value, size_t size) {
  Object *one = object;
  if (one->kind != PREFERENCE || attribute != 1 || size != 8) return INVALID;
  one->workspace = *(const uint64_t *)value;
  return status(SET);
}

static int remember(Object *desc, Object *a, Object *b, Object *c, Object *d) {
  int fp8 = d->type == 28 || d->type == 29; /* whose addend is in fp16 */
  if (desc->kind != DESC || a->kind != LAYOUT || b->kind != LAYOUT || c->kind != LAYOUT || d->kind != LAYOUT) return INVALID;
  if (c->type != (fp8 ? 2 : d->type) || c->order != d->order || c->rows != d->rows || c->ld != d->ld) return INVALID;
  stub_desc = *desc, stub_a = *a, stub_b = *b, stub_d = *d;
  return SUCCESS;
}

int cublasLtMatmulAlgoGetHeuristic(void *handle, Object *desc, Object *a, Object *b, Object *c, Object *d,
                                   Object *preference, int wanted, Result *results, int *count) {
  if (!handle || wanted != 1 || preference->kind != PREFERENCE || remember(desc, a, b, c, d)) return INVALID;
  ++stub_heuristics;
  stub_allowed = preference->workspace;
  for (int i = 0; i < 8; ++i) results->algo.data[i] = (uint64_t)stub_config[i];
  results->algo.data[7] |= (uint64_t)stub_config[8] << 32;
  results->state = (int)stub_state;
  *count = (int)stub_count;
  return status(HEURISTIC);
}

static const size_t SIZES[9] = {4, 4, 4, 4, 4, 4, 4, 2, 2};

int cublasLtMatmulAlgoConfigGetAttribute(const Algo *algo, int attribute, void *value, size_t size, size_t *written) {
  if (attribute < 0 || attribute > 8 || size != SIZES[attribute]) return INVALID;
  uint64_t found = attribute == 8 ? algo->data[7] >> 32 : attribute == 7 ? algo->data[7] & 0xFFFFFFFF : algo->data[attribute];
  memcpy(value, &found, size);
  *written = attribute == stub_short_attribute ? size / 2 : size;
  return status(GET);
}

int cublasLtMatmulAlgoConfigSetAttribute(Algo *algo, int attribute, const void *value, size_t size) {
  if (attribute < 1 || attribute > 8 || size != SIZES[attribute]) return INVALID;
  uint64_t given = 0;
  memcpy(&given, value, size);
  stub_asked[attribute] = (long)given;
  (void)algo;
  return status(CONFIGURE);
}

int cublasLtMatmulAlgoInit(void *handle, int compute, int scale, int a, int b, int c, int d, int id, Algo *algo) {
  if (!handle || compute != 68 || scale != 0 || (c != d && c != 2)) return INVALID;
  (void)a, (void)b;
  memset(stub_asked, 0, sizeof stub_asked);
  memset(algo, 0, sizeof *algo);
  stub_asked[0] = id;
  algo->data[0] = (uint64_t)id;
  return status(INIT);
}

int cublasLtMatmulAlgoCheck(void *handle, Object *desc, Object *a, Object *b, Object *c, Object *d, const Algo *algo,
                            Result *result) {
  if (!handle || !algo || remember(desc, a, b, c, d)) return INVALID;
  result->workspace = (size_t)stub_workspace;
  return status(CHECK);
}

static float wide(uint16_t half) {
  uint32_t bits = (uint32_t)half << 16;
  float value;
  memcpy(&value, &bits, 4);
  return value;
}

int cublasLtMatmul(void *handle, Object *desc, const float *alpha, const uint16_t *a, Object *la, const uint16_t *b,
                   Object *lb, const float *beta, const float *c, Object *lc, float *d, Object *ld, const Algo *algo,
                   void *workspace, size_t size, void *stream) {
  if (!handle || *alpha != 1.0f || *beta != 0.0f || (c && c != d) || !algo || remember(desc, la, lb, lc, ld)) return INVALID;
  (void)workspace, (void)stream;
  stub_allowed = size;
  ++stub_products;
  if (la->type == 14 && la->order == 1 && ld->type == 0)
    for (uint64_t i = 0; i < ld->rows; ++i)
      for (uint64_t j = 0; j < ld->columns; ++j) {
        float sum = 0.0f;
        for (uint64_t k = 0; k < la->columns; ++k)
          sum += wide(a[i * (uint64_t)la->ld + k]) * wide(b[k * (uint64_t)lb->ld + j]);
        d[i * (uint64_t)ld->ld + j] = sum;
      }
  return status(MATMUL);
}
