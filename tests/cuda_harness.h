/* Runs cases (emit_harness.h) as CUDA C on the simulator: each one is a program of one op, made by hand, so that
 * strides, live values and grid points may be what no scheduler would make of them. */
#ifndef CUDA_HARNESS_H
#define CUDA_HARNESS_H

#include "base/embed.h"
#include "emit_harness.h"
#include "machine/sim/sim.h"

extern const struct embedded_file emit_files[];

enum { CUDA_CHUNK = 60 }; /* ops in a unit */

typedef struct cuda_chunk { /* a unit */
    void *code;
    emit_cuda_info info;
    const tile_op *ops[CUDA_CHUNK];
} cuda_chunk;

typedef struct cuda_case {
    const test_case *c;
    emit_cuda_op op;
    cuda_chunk *chunk;
    int opcode;
} cuda_case;

static cuda_case cuda_cases[CASES];
static __attribute__((unused)) int cuda_case_count;

/* The group's cache of compiled code, in a folder of its own. */
static char cuda_cache[TEMPORARY_BYTES];
static inline bool cuda_cases_begin(void) {
    return temporary_make(cuda_cache) && !setenv("MONOTILE_CACHE", cuda_cache, 1);
}
static inline int cuda_cases_end(void **state) {
    (void)state;
    for (int i = 0; i < case_count; i++) free(cases[i].source), free(cases[i].own_tensors);
    arena_free(case_memory);
    return temporary_remove(cuda_cache);
}

static inline sim_machine *cuda_sim(void) {
    static mt_machine *m;
    mt_error error = {0};
    if (!m && mt_machine_open(&m, "sim:1", &error)) abort();
    return (sim_machine *)m;
}

/* ---- functions of the unit that one thread can call: not instrumented ---- */

/* The unit's text with the simulator's chip, and `more` behind it. */
static inline bool shim_text(text *out, const char *unit, const char *more) {
    const char *chip = NULL;
    for (const struct embedded_file *f = emit_files; f->name; f++)
        if (!strcmp(f->name, "cuda_chip.h")) chip = f->text;
    const char *at = chip ? strstr(unit, chip) : NULL;
    if (!at) return false;
    text_append(out, unit, (size_t)(at - unit));
    sim_chip_text(out);
    text_string(out, at + strlen(chip));
    text_string(out, sim_tail_text());
    text_string(out, more);
    return !out->failed;
}

static inline __attribute__((unused)) void *compile_shim(const char *unit, const char *more) {
    char folder[TEMPORARY_BYTES], source[256], object[256], command[1024];
    text shim = {0};
    mt_error error = {0};
    void *library = NULL;
    if (!temporary_make(folder) || !shim_text(&shim, unit, more)) return NULL;
    snprintf(source, sizeof source, "%s/unit.cpp", folder);
    snprintf(object, sizeof object, "%s/unit.so", folder);
    snprintf(
        command, sizeof command,
        "${CXX:-c++} -std=gnu++17 -O1 -fwrapv -ffp-contract=off -fno-strict-aliasing -w -shared -fPIC -o %s %s -lm",
        object, source);
    if (file_write_atomic(source, shim.data, shim.length, &error) == MT_OK && !system(command))
        library = dlopen(object, RTLD_NOW | RTLD_LOCAL);
    const sim_unit *loaded = library ? dlsym(library, "mt_sim_unit") : NULL;
    if (loaded) loaded->set(sim_calls_ready());
    unlink(source);
    unlink(object);
    rmdir(folder);
    text_free(&shim);
    return library;
}

/* ---- weights ---- */

static inline int64_t band_row(const tile_format *f, int64_t columns) {
    int64_t bytes = tile_format_bytes(f, columns);
    while (bytes % 32 != 16) bytes++;
    return bytes;
}

/* A block as the first or second one of a pair. */
static inline void lay_half(const tile_format *f, const uint8_t *block, int second, uint8_t *pair) {
    for (int i = 0; i < f->body->field_count; i++) {
        const tile_field *field = &f->body->fields[i];
        const int first = field->bit_offset / 8,
                  end = i + 1 < f->body->field_count ? field[1].bit_offset / 8 : f->bits / 8;
        memcpy(pair + 2 * first + second * (end - first), block + first, (size_t)(end - first));
    }
}

/* A weight of the case, in the layout: by the formula in role.h, element by element. */
static inline void lay_weight(const test_tensor *from, role_layout layout, test_tensor *to) {
    const tile_format *f = from->param->type;
    const int64_t rows = from->view.extent[0], columns = from->view.extent[1], stride = from->view.stride[0];
    *to = *from;
    tensor_map(to, (size_t)role_layout_bytes(layout, f, rows, columns));
    memset(to->memory, 0, to->size);
    uint8_t *data = to->view.data;
    const uint8_t *source = from->view.data;
    const int64_t band = layout == ROLE_BANDS ? role_band(f, columns) : 0, bands = band ? ceil_div(columns, band) : 0;
    for (int64_t n = 0; n < rows; n++)
        for (int64_t k = 0; k < columns; k += f->block) {
            int64_t at;
            if (layout == ROLE_ATOMS)
                at = ((n / 8) * ceil_div(columns, 64) + k / 64) * 1024 + (n % 8) * 128 + ((k % 64 / 8) ^ (n % 8)) * 16 +
                     (k % 8) * 2;
            else {
                const int64_t b = k / band, whole = band_row(f, band),
                              wide = b == bands - 1 ? band_row(f, columns - b * band) : whole;
                at = n / 8 * (role_layout_bytes(layout, f, 8, columns)) + b * 8 * whole + n % 8 * wide +
                     tile_format_bytes(f, k % band);
            }
            const size_t bytes = (size_t)f->bits / 8;
            if (at < 0 || (size_t)at + bytes > to->size - BEFORE) abort();
            const uint8_t *block = source + (n * stride + k) / f->block * (int64_t)bytes;
            if (layout == ROLE_BANDS && f->block == 32 && bytes % 4 && columns % 64 == 0)
                lay_half(f, block, (int)(k / 32 % 2), data + at - k / 32 % 2 * (int64_t)bytes);
            else
                memcpy(data + at, block, bytes);
        }
}

/* A tensor of rank 2 or 3 whose rows begin at multiples of 16 bytes, as those of MAPPED operands do. What is between is
 * no number. */
static inline void lay_mapped(const test_tensor *from, test_tensor *to) {
    const int rank = from->param->rank;
    const int64_t columns = from->view.extent[rank - 1], middle = rank == 3 ? from->view.extent[1] : 1;
    *to = *from;
    to->view.stride[rank - 2] = (int64_t)align_up((uint64_t)columns, 8) + 8;
    if (rank == 3) to->view.stride[0] = middle * to->view.stride[1] + 8;
    tensor_map(to, (size_t)(from->view.extent[0] * to->view.stride[0] * 2));
    memset(to->memory, 0xff, to->size);
    for (int64_t r = 0; r < from->view.extent[0]; r++)
        for (int64_t i = 0; i < middle; i++) {
            const int64_t at = r * from->view.stride[0] + (rank == 3 ? i * from->view.stride[1] : 0),
                          put = r * to->view.stride[0] + (rank == 3 ? i * to->view.stride[1] : 0);
            memcpy((char *)to->view.data + put * 2, (const char *)from->view.data + at * 2, (size_t)columns * 2);
        }
}

/* ---- running ---- */

/* The grid of a case, and a step more where live values decide: instructions, in `memory`. */
static inline program_instruction *instructions_of(const cuda_case *k, const cpu_tensor *views, arena *memory,
                                                   size_t *count) {
    const tile_op *op = k->c->op;
    cpu_arg args[TILE_PARAMS] = {{0}};
    program_instruction one = {.opcode = (uint16_t)k->opcode};
    arguments_of(k->c, args);
    interpreter p = {.op = op, .tensors = views, .args = args, .lives = k->c->lives};
    int64_t grid[TILE_AXES], total = 1;
    for (int a = 0; a < op->axis_total; a++) {
        grid[a] = evaluate_scalar(&p, op->axis_count[a]).i;
        if (op->axis_count[a]->kind != TILE_CONST) grid[a]++;
        total *= grid[a];
    }
    for (size_t b = 0; b < p.block_count; b++) free(p.blocks[b]);
    free(p.blocks);
    for (int q = 0; q < op->param_count; q++) {
        const int i = op->params[q].ordinal;
        if (op->params[q].kind != TILE_PARAM_ARG || i >= PROGRAM_ARGS) continue;
        if (op->params[q].type->scalar.kind == TILE_FLOAT)
            memcpy(&one.arg[i], &args[i].f, 4);
        else
            one.arg[i] = (int32_t)args[i].i;
    }
    for (int i = 0; i < PROGRAM_LIVES; i++) one.live[i] = (uint16_t)i;
    for (int t = 0; t < op->tensor_count; t++) one.tensor[t] = (uint32_t)t;
    *count = (size_t)max_i64(total, 0);
    program_instruction *all = ARENA_ARRAY(memory, *count + 1, program_instruction);
    for (int64_t i = 0; i < total; i++) {
        int64_t rest = i;
        all[i] = one;
        for (int a = op->axis_total - 1; a >= 0; a--) all[i].index[a] = (int32_t)(rest % grid[a]), rest /= grid[a];
    }
    return all;
}

/* False, with what went wrong. */
static inline bool run_cuda(const cuda_case *k, const test_tensor *tensors, int count, uint64_t seed, char *what,
                            size_t size) {
    static const char strings[] = "\0op";
    const test_case *c = k->c;
    arena *memory = arena_new();
    sim_session *s = calloc(1, sizeof *s);
    if (!memory || !s) abort();
    cpu_tensor views[CASE_TENSORS];
    test_tensor laid[CASE_TENSORS];
    views_of(tensors, count, views);
    size_t total;
    program_instruction *instructions = instructions_of(k, views, memory, &total);
    const program_header header = {.placement = MT_PLACE_STATIC, .processor_count = 1};
    const program_op ops[CUDA_CHUNK] = {{.name = 1}};
    const program_node node = {.name = 1, .count = (uint32_t)total};
    const program_processor processor = {0, (uint32_t)total};
    uint32_t *order = ARENA_ARRAY(memory, total + 1, uint32_t);
    program_operand *operands = ARENA_ARRAY(memory, (size_t)count + 1, program_operand);
    program_tensor *described = ARENA_ARRAY(memory, (size_t)count + 1, program_tensor);
    program_view *seen = ARENA_ARRAY(memory, (size_t)count + 1, program_view);
    const tile_format **formats = ARENA_ARRAY(memory, (size_t)count + 1, const tile_format *);
    role_layout *layouts = ARENA_ARRAY(memory, (size_t)count + 1, role_layout);
    for (size_t i = 0; i < total; i++) order[i] = (uint32_t)i;
    s->tensors = ARENA_ARRAY(memory, (size_t)count + 1, sim_memory);
    s->weights = ARENA_ARRAY(memory, (size_t)count + 1, sim_weight *);
    mt_error error = {0};
    mt_status status = MT_OK;
    for (int i = 0; i < count && status == MT_OK; i++) {
        const test_tensor *t = &tensors[i];
        const tile_format *f = t->param->type;
        laid[i] = *t;
        layouts[i] = k->op.layout[i];
        if (layouts[i] == ROLE_MAPPED) lay_mapped(t, &laid[i]);
        if (layouts[i] == ROLE_MAPPED) layouts[i] = ROLE_ROWS;
        if (layouts[i] != ROLE_ROWS) lay_weight(t, layouts[i], &laid[i]);
        described[i].role = t->param->kind == TILE_IN ? MT_INPUT : MT_STATE;
        operands[i] = (program_operand){.tensor = (uint32_t)i, .rank = (uint8_t)t->param->rank};
        memcpy(operands[i].extent, t->view.extent, sizeof operands[i].extent);
        memcpy(operands[i].stride, laid[i].view.stride, sizeof operands[i].stride);
        memset(operands[i].live, 0xff, sizeof operands[i].live);
        seen[i] = (program_view){.block = f->block, .bits = f->bits};
        formats[i] = f;
        s->tensors[i].name = t->param->name;
        status = sim_memory_bind(&s->tensors[i], laid[i].view.data, laid[i].size - BEFORE, t->param->kind != TILE_IN,
                                 &error);
    }
    size_t ops_count = 0;
    while (ops_count < CUDA_CHUNK && k->chunk->ops[ops_count]) ops_count++;
    const mt_program program = {.header = &header,
                                .strings = strings,
                                .ops = ops,
                                .ops_count = ops_count,
                                .tensors = described,
                                .tensors_count = (size_t)count,
                                .operands = operands,
                                .operands_count = (size_t)count,
                                .nodes = &node,
                                .nodes_count = 1,
                                .instructions = instructions,
                                .instructions_count = total,
                                .order = order,
                                .order_count = total,
                                .processors = &processor,
                                .processors_count = 1,
                                .lives_count = 4};
    int32_t lives[4], done;
    memcpy(lives, c->lives, sizeof lives);
    s->machine = cuda_sim();
    s->machine->schedule = (sim_schedule){SIM_RANDOM, seed};
    s->machine->pages = 3;
    s->program = &program;
    s->memory = memory;
    s->binding = (program_binding){.ops = k->chunk->ops, .views = seen, .formats = formats};
    s->names.values = lives;
    s->layouts = layouts;
    s->handoff = (device_handoff){.instructions = instructions, /* nothing is stamped */
                                  .ends = ARENA_ARRAY(memory, total + 1, uint8_t),
                                  .stamped = ARENA_ARRAY(memory, (size_t)count + 1, bool)};
    s->unit = dlsym(k->chunk->code, "mt_sim_unit");
    s->scratch_bytes = k->chunk->info.scratch_bytes;
    s->page_bytes = k->chunk->info.page_bytes;
    s->least_pages = k->chunk->info.least_pages;
    s->stale = s->broken = true;
    if (status == MT_OK) status = sim_session_tables(s, &error);
    if (status == MT_OK) status = sim_session_launch(s, 1, NULL, NULL, &done, &error);
    if (status != MT_OK) snprintf(what, size, "%.*s", (int)size - 1, error.message);
    for (int i = 0; i < count; i++)
        if (laid[i].base != tensors[i].base) tensors_free(&laid[i], 1);
    machine_sim.session_destroy(&s->base);
    return status == MT_OK;
}

/* ---- products whose weights are not rounded ---- */

/* What an element's roundings are relative to: its size, or, where it is a difference, that of its parts. What
 * it could be with all bits of all codes clear, or set, the scales and minimums being as they are, shows that.
 * (A field that has less than a bit for each element has no codes.) */
static inline void element_sizes(const tile_format *f, const uint8_t *block, const float *values, double *sizes) {
    const tile_node *value = f->body->value;
    uint8_t other[4096];
    float ends[1024];
    for (int i = 0; i < f->block; i++) sizes[i] = fabs((double)values[i]);
    if (value->kind != TILE_ELEMENTWISE || (value->op != TILE_ADD && value->op != TILE_SUB)) return;
    for (int end = 0; end < 2; end++) {
        memcpy(other, block, (size_t)f->bits / 8);
        for (int i = 0; i < f->body->field_count; i++) {
            const tile_field *field = &f->body->fields[i];
            const int bits = field->count * field->type->scalar.bits;
            if (bits >= f->block) memset(other + field->bit_offset / 8, end ? 0xff : 0, (size_t)bits / 8);
        }
        tile_format_decode(f, other, ends);
        for (int i = 0; i < f->block; i++) sizes[i] += fabs((double)ends[i]);
    }
}

/* y = x · wᵀ, x as the products' f16, w as declared, in f64. What comes out is sums in f32. A product of codes is
 * exact, a tensor core cuts each of 17 terms off at the largest one's 24th bit; then there are two roundings for the
 * scale, and sums over a warp's slices, over lanes, over warps. All together make less than 32 roundings of 2^-23 of
 * what they add up. */
static inline bool differs_exactly(const test_tensor *tensors, const test_tensor *got, char *what, size_t size) {
    const test_tensor *x = &tensors[0], *w = &tensors[1];
    const tile_format *f = w->param->type;
    const tile_scalar f16 = tile_format_find("f16")->scalar;
    const int64_t columns = x->view.extent[1];
    float values[1024];
    double sizes[1024];
    for (int64_t n = 0; n < w->view.extent[0]; n++)
        for (int64_t m = 0; m < x->view.extent[0]; m++) {
            double sum = 0, most = 0;
            for (int64_t i = 0; i < columns; i++) {
                if (i % f->block == 0) {
                    const uint8_t *block =
                        (const uint8_t *)w->view.data + (n * w->view.stride[0] + i) / f->block * (int64_t)(f->bits / 8);
                    tile_format_decode(f, block, values);
                    element_sizes(f, block, values, sizes);
                }
                const double left = load_cell(x->param->type, x->view.data, m * x->view.stride[0] + i, NULL).f,
                             rounded = tile_scalar_decode(f16, tile_scalar_encode(f16, left));
                sum += rounded * (double)values[i % f->block];
                most += fabs(rounded) * sizes[i % f->block];
            }
            const double y = load_cell(got[2].param->type, got[2].view.data, m * got[2].view.stride[0] + n, NULL).f;
            if (fabs(y - sum) <= 32 * 0x1p-23 * most || (isnan(sum) && !isfinite(y)) || (isinf(sum) && y == sum))
                continue;
            snprintf(what, size, "%lld, %lld: %.9g, expected %.9g; %g of %g", (long long)m, (long long)n, y, sum,
                     fabs(y - sum) / most, most);
            return true;
        }
    return false;
}

/* Runs a case and compares; twice, in another order of threads, for the same bits. */
static inline __attribute__((unused)) bool check_cuda(const cuda_case *k, char *what, size_t size) {
    test_tensor tensors[CASE_TENSORS], copies[CASE_TENSORS], again[CASE_TENSORS];
    const int count = tensors_make(k->c, tensors);
    for (int i = 0; i < count; i++) tensor_copy(&copies[i], &tensors[i]), tensor_copy(&again[i], &tensors[i]);
    run_interpreter(k->c, tensors, count);
    bool good = run_cuda(k, copies, count, 1, what, size) && run_cuda(k, again, count, 977, what, size);
    for (int i = 0; i < count && good; i++) {
        if (!k->c->exact)
            good = !differs(&copies[i], &tensors[i], k->c->tolerance, what, size);
        else if (i == 2)
            good = !differs_exactly(tensors, copies, what, size);
        if (good && memcmp(copies[i].memory, again[i].memory, copies[i].size)) {
            snprintf(what, size, "%s differs between two orders of threads", copies[i].param->name);
            good = false;
        }
    }
    tensors_free(tensors, count);
    tensors_free(copies, count);
    tensors_free(again, count);
    return good;
}

/* Emits and compiles cuda_cases[first, last). */
static inline __attribute__((unused)) bool build_chunk(int first, int last) {
    emit_cuda_op ops[CUDA_CHUNK];
    mt_error error = {0};
    cuda_chunk *chunk = calloc(1, sizeof *chunk); /* as long as the process */
    if (!chunk) return false;
    for (int i = first; i < last; i++) {
        ops[i - first] = cuda_cases[i].op;
        chunk->ops[i - first] = cuda_cases[i].c->op;
        cuda_cases[i].opcode = i - first;
        cuda_cases[i].chunk = chunk;
    }
    if (sim_compile(cuda_sim(), ops, (size_t)(last - first), false, &chunk->info, &chunk->code, &error) == MT_OK)
        return true;
    fprintf(stderr, "%s: %s\n", error.where, error.message);
    return false;
}

#endif
