/* The checker's verdict on random programs, with one wait or arrival taken away, against brute force: all pairs of
 * instructions, every byte that they touch at every value of the live value, and reachability as a bit matrix. */
#include "program_edit.h"

static int set_up(void **state) {
    (void)state;
    open_tiles();
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    mt_tile_close(file);
    return 0;
}

typedef struct oracle {
    size_t n, words;
    bool *touch;    /* [j * n + i], i < j: by the bytes that they touch, they must be ordered */
    bool *regions;  /* the same, by regions */
    uint64_t *done; /* rows: finished before j starts */
    uint64_t *rows; /* by barrier */
} oracle;

typedef struct accesses {
    int count;
    program_region region[2 * TILE_PARAMS];
    bool writes[2 * TILE_PARAMS];
    uint64_t *bytes[2];
} accesses;

static void mark_bytes(const mt_program *p, const size_t *base, const program_instruction *n, const tile_box *box,
                       int32_t live, uint64_t *bytes) {
    const program_operand *o = &p->operands[n->tensor[box->tensor]];
    const program_tensor *t = &p->tensors[o->tensor];
    const int bits = tile_format_find(program_string(p, t->format))->bits;
    int64_t at[PROGRAM_RANK], low[PROGRAM_RANK], high[PROGRAM_RANK];
    for (int d = 0; d < box->rank; d++) {
        const int64_t shift = box->dim[d].offset_live >= 0 ? live : 0;
        at[d] = low[d] = max_i64(0, box->dim[d].low + shift);
        high[d] = min_i64(o->extent[d], box->dim[d].high + shift);
        if (low[d] >= high[d]) return;
    }
    for (int d = 0; d >= 0;) {
        int64_t element = o->offset;
        for (int k = 0; k < box->rank; k++) element += at[k] * o->stride[k];
        for (int64_t b = element * bits / 8; b < (element * bits + bits + 7) / 8; b++) {
            const size_t byte = base[o->tensor] + (size_t)b;
            bytes[byte / 64] |= 1ull << byte % 64;
        }
        for (d = box->rank - 1; d >= 0 && ++at[d] == high[d]; d--) at[d] = low[d];
    }
}

static bool meet(const uint64_t *a, const uint64_t *b, size_t words) {
    for (size_t w = 0; w < words; w++)
        if (a[w] & b[w]) return true;
    return false;
}

static oracle oracle_new(const mt_program *p) {
    oracle o = {.n = p->instructions_count, .words = p->instructions_count / 64 + 1};
    arena *a = arena_new();
    program_binding binding;
    mt_error error = {0};
    check_status(program_bind(p, a, &binding, &error), &error);
    size_t total = p->header->slot_bytes, *base = ARENA_ARRAY(a, p->tensors_count, size_t);
    for (size_t t = 0; t < p->tensors_count; t++) {
        base[t] = p->tensors[t].role == MT_TEMP ? (size_t)p->tensors[t].offset : total;
        if (p->tensors[t].role != MT_TEMP) total += (size_t)p->tensors[t].bytes;
    }
    const size_t words = total / 64 + 1;
    accesses *all = ARENA_ARRAY(a, o.n, accesses);
    o.touch = calloc(o.n * o.n, 1), o.regions = calloc(o.n * o.n, 1);
    for (int32_t live = 0; live <= (p->lives_count ? p->lives[0].most : 0);
         live++) { /* one live value at most, from 0 */
        for (size_t i = 0; i < o.n; i++) {
            const program_instruction *n = &p->instructions[i];
            accesses *mine = &all[i];
            *mine = (accesses){0};
            for (int w = 0; w < 2; w++) mine->bytes[w] = ARENA_ARRAY(a, words, uint64_t); /* read, written */
            if (n->opcode == PROGRAM_JOIN) continue;
            tile_instance instance;
            tile_summary s;
            int64_t index[TILE_AXES];
            for (int k = 0; k < TILE_AXES; k++) index[k] = n->index[k];
            check_status(program_bind_instance(p, &binding, n, &instance, &error), &error);
            tile_summarise(&instance, index, &s);
            mine->count = s.box_count;
            for (int k = 0; k < s.box_count; k++) {
                program_view_region(&binding.views[n->tensor[s.box[k].tensor]], &instance, n, &s.box[k],
                                    &mine->region[k]);
                mine->writes[k] = s.box[k].writes;
                mark_bytes(p, base, n, &s.box[k], live, mine->bytes[s.box[k].writes]);
            }
        }
        for (size_t j = 0; j < o.n; j++)
            for (size_t i = 0; i < j; i++) {
                if (meet(all[i].bytes[0], all[j].bytes[1], words) || meet(all[i].bytes[1], all[j].bytes[0], words) ||
                    meet(all[i].bytes[1], all[j].bytes[1], words))
                    o.touch[j * o.n + i] = true;
                for (int x = 0; x < all[i].count; x++)
                    for (int y = 0; y < all[j].count; y++) {
                        const program_region *one = &all[i].region[x], *other = &all[j].region[y];
                        const bool slots =
                            p->tensors[one->tensor].role == MT_TEMP && p->tensors[other->tensor].role == MT_TEMP;
                        if ((slots || one->tensor == other->tensor) && (all[i].writes[x] || all[j].writes[y]) &&
                            program_regions_meet(one, other, INT64_MIN, INT64_MAX))
                            o.regions[j * o.n + i] = true;
                    }
            }
    }
    arena_free(a);
    o.done = malloc(o.n * o.words * 8), o.rows = malloc((p->barriers_count + 1) * o.words * 8);
    return o;
}

static void oracle_free(oracle *o) { free(o->touch), free(o->regions), free(o->done), free(o->rows); }

/* Whether barriers order all pairs of the matrix. */
static void oracle_judge(oracle *o, const mt_program *p, bool *bytes_fine, bool *regions_fine) {
    memset(o->done, 0, o->n * o->words * 8), memset(o->rows, 0, (p->barriers_count + 1) * o->words * 8);
    *bytes_fine = *regions_fine = true;
    for (size_t j = 0; j < o->n; j++) {
        const program_instruction *n = &p->instructions[j];
        uint64_t *done = o->done + j * o->words;
        for (int k = 0; k < n->wait_count; k++)
            for (size_t w = 0; w < o->words; w++) done[w] |= o->rows[n->wait[k] * o->words + w];
        for (int k = 0; k < n->arrive_count; k++) {
            for (size_t w = 0; w < o->words; w++) o->rows[n->arrive[k] * o->words + w] |= done[w];
            o->rows[n->arrive[k] * o->words + j / 64] |= 1ull << j % 64;
        }
        for (size_t i = 0; i < j; i++) {
            if (done[i / 64] >> i % 64 & 1) continue;
            *bytes_fine = *bytes_fine && !o->touch[j * o->n + i];
            *regions_fine = *regions_fine && !o->regions[j * o->n + i];
        }
    }
}

static mt_program *random_program(void) {
    enum { POOL = 8 };
    mt_graph *g;
    mt_live pos;
    mt_error error = {0};
    check_status(mt_graph_create(&g, &error), &error);
    check_status(mt_graph_live(g, "pos", 0, 3, &pos, &error), &error);
    const int64_t rows = 2 + draw(5), columns = 2 + draw(7);
    mt_tensor pool[POOL];
    for (int k = 0; k < POOL; k++) {
        char name[16];
        snprintf(name, sizeof name, "p%d", k);
        pool[k] = tensor(g,
                         k == 0   ? MT_OUTPUT
                         : k == 1 ? MT_STATE
                                  : MT_TEMP,
                         name, "f32", rows + (k == 1 ? 3 : 0), columns);
        if (k > 1) NODE(g, "fill", NULL, MT_OPERAND("y", pool[k]));
    }
    const mt_tensor small = tensor(g, MT_STATE, "small", "u4", rows, columns),
                    sums = tensor(g, MT_TEMP, "sums", "f32", rows, 1);
    NODE(g, "fill", NULL, MT_OPERAND("y", sums));
    const int nodes = 3 + (int)draw(12);
    for (int k = 0; k < nodes; k++) {
        mt_tensor x = pool[2 + draw(POOL - 2)], z = pool[2 + draw(POOL - 2)], y = pool[2 + draw(POOL - 2)];
        if (x == y || z == y) continue;
        const uint32_t kind = draw(10);
        if (kind < 3 && rows > 2) { /* the same rows of all */
            const int64_t begin = draw((uint32_t)rows - 1), end = begin + 1 + draw((uint32_t)(rows - begin));
            check_status(mt_graph_slice(g, x, 0, begin, end, &x, &error), &error);
            check_status(mt_graph_slice(g, y, 0, begin, end, &y, &error), &error);
            check_status(mt_graph_slice(g, z, 0, begin, end, &z, &error), &error);
        } else if (kind < 5) { /* some columns */
            const int64_t begin = draw((uint32_t)columns - 1), end = begin + 1 + draw((uint32_t)(columns - begin));
            check_status(mt_graph_slice(g, x, 1, begin, end, &x, &error), &error);
            check_status(mt_graph_slice(g, y, 1, begin, end, &y, &error), &error);
            check_status(mt_graph_slice(g, z, 1, begin, end, &z, &error), &error);
        }
        const mt_operand br = MT_OPERAND_INTEGER("BR", 1 + draw(3)), bc = MT_OPERAND_INTEGER("BC", 1 + draw(5));
        switch (draw(9)) {
        case 0:
            NODE(g, "fill", NULL, MT_OPERAND("y", y), br, bc);
            break;
        case 1:
            NODE(g, "copy", NULL, MT_OPERAND("x", x), MT_OPERAND("y", y), br, bc);
            break;
        case 2:
            NODE(g, "add", NULL, MT_OPERAND("x", x), MT_OPERAND("z", z), MT_OPERAND("y", y), br, bc);
            break;
        case 3:
            NODE(g, "stencil", NULL, MT_OPERAND("x", x), MT_OPERAND("y", y), br);
            break;
        case 4:
            NODE(g, "total", NULL, MT_OPERAND("x", x), MT_OPERAND("y", y), br, bc);
            break;
        case 5:
            NODE(g, "put", NULL, MT_OPERAND("x", pool[2]), MT_OPERAND_LIVE("pos", pos), MT_OPERAND("y", pool[1]));
            break;
        case 6:
            NODE(g, "take", NULL, MT_OPERAND("x", pool[1]), MT_OPERAND_LIVE("pos", pos), MT_OPERAND("y", pool[3]));
            break;
        case 7:
            NODE(g, "split", NULL, MT_OPERAND("x", pool[4]), MT_OPERAND("y", sums), br);
            break;
        case 8:
            NODE(g, "nibbles", NULL, MT_OPERAND("x", pool[5]), MT_OPERAND("y", small), br, bc);
            break;
        }
    }
    NODE(g, "total", NULL, MT_OPERAND("x", sums), MT_OPERAND("y", pool[0])); /* so that nothing is dead */
    for (int k = 2; k < POOL; k++)
        NODE(g, "add", NULL, MT_OPERAND("x", pool[k]), MT_OPERAND("z", pool[k]), MT_OPERAND("y", pool[0]));
    return compile(g, 3, MT_PLACE_QUEUE);
}

static void test_random(void **state) {
    (void)state;
    size_t tried = 0, wrong = 0;
    for (int round = 0; round < 60; round++) {
        random_state = 1000 + (uint64_t)round;
        mt_program *p = random_program();
        copy c = copy_of(p);
        oracle o = oracle_new(p);
        bool bytes_fine, regions_fine;
        oracle_judge(&o, p, &bytes_fine, &regions_fine);
        assert_true(bytes_fine && regions_fine);
        for (size_t i = 0; i < o.n; i++) {
            program_instruction *n = &TABLE(&c, instructions, program_instruction)[i];
            for (int k = 0; k < p->instructions[i].wait_count + p->instructions[i].arrive_count; k++) {
                const bool wait = k < p->instructions[i].wait_count;
                const uint32_t barrier = wait ? 0 : n->arrive[k - n->wait_count];
                if (wait) {
                    remove_wait(n, k);
                } else { /* the barrier still adds up, but does not wait for this one */
                    if (p->barriers[barrier].arrivals == 1) continue;
                    remove_arrival(n, k - n->wait_count);
                    TABLE(&c, barriers, program_barrier)[barrier].arrivals--;
                    for (size_t j = 0; j < o.n; j++)
                        for (int w = 0; w < c.p->instructions[j].wait_count; w++)
                            if (c.p->instructions[j].wait[w] == barrier)
                                TABLE(&c, instructions, program_instruction)[j].target[w]--;
                }
                oracle_judge(&o, c.p, &bytes_fine, &regions_fine);
                mt_error error = {0};
                const mt_status status = program_check(c.p, &error);
                if ((status == MT_OK) != regions_fine || (status == MT_OK && !bytes_fine))
                    fail_msg("round %d, instruction %zu, place %d: bytes %d, regions %d, checker: %s", round, i, k,
                             bytes_fine, regions_fine, error.message);
                tried++;
                wrong += !regions_fine;
                memcpy(c.bytes, p->header, c.size);
            }
        }
        oracle_free(&o);
        copy_free(&c);
        mt_program_destroy(p);
    }
    assert_true(tried > 1000 && wrong > tried / 3);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_random)};
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
