/* The program format: damaged files, programs that are wrong in one place, regions, and programs as text. test_check.c
 * has the checker against brute force. */
#include "program_edit.h"
#include "temporary.h"

#include <unistd.h>

static char folder[TEMPORARY_BYTES];

static int set_up(void **state) {
    (void)state;
    open_tiles();
    return temporary_make(folder) ? 0 : -1;
}

static int tear_down(void **state) {
    (void)state;
    mt_tile_close(file);
    return temporary_remove(folder);
}

/* x -> scale -> s -> copy -> c -> add(x, c) -> t -> put at pos into a state; s and t can share a slot. */
static mt_program *small_program(mt_placement placement) {
    mt_graph *g;
    mt_live pos;
    mt_error error = {0};
    check_status(mt_graph_create(&g, &error), &error);
    check_status(mt_graph_live(g, "pos", 0, 3, &pos, &error), &error);
    const mt_tensor x = tensor(g, MT_INPUT, "x", "f32", 4, 6), k = tensor(g, MT_STATE, "k", "f32", 7, 6);
    const mt_tensor s = tensor(g, MT_TEMP, "s", "f32", 4, 6), c = tensor(g, MT_TEMP, "c", "f32", 4, 6),
                    t = tensor(g, MT_TEMP, "t", "f32", 4, 6);
    const mt_tensor y = tensor(g, MT_OUTPUT, "y", "f32", 4, 6);
    NODE(g, "scale", "first", MT_OPERAND("x", x), MT_OPERAND_FLOAT("a", 0.5f), MT_OPERAND("y", s),
         MT_OPERAND_INTEGER("BR", 2));
    NODE(g, "copy", "second", MT_OPERAND("x", s), MT_OPERAND("y", c), MT_OPERAND_INTEGER("BR", 2),
         MT_OPERAND_INTEGER("BC", 4));
    NODE(g, "add", "third", MT_OPERAND("x", x), MT_OPERAND("z", c), MT_OPERAND("y", t), MT_OPERAND_INTEGER("BR", 2),
         MT_OPERAND_INTEGER("BC", 4));
    NODE(g, "put", "fourth", MT_OPERAND("x", t), MT_OPERAND_LIVE("pos", pos), MT_OPERAND("y", k));
    NODE(g, "take", "fifth", MT_OPERAND("x", k), MT_OPERAND_LIVE("pos", pos), MT_OPERAND("y", y));
    return compile(g, 2, placement);
}

static void seal(uint8_t *bytes, size_t size) {
    program_header *h = (program_header *)bytes;
    const hash128 hash = hash_bytes(bytes + sizeof *h, size - sizeof *h);
    h->hash[0] = hash.low;
    h->hash[1] = hash.high;
}

static mt_status open_again(copy *c, mt_error *error) {
    mt_program *p;
    seal(c->bytes, c->size);
    const mt_status status = program_open_memory(&p, c->bytes, c->size, "edited", error);
    if (status == MT_OK)
        program_free(p);
    else
        assert_null(p);
    return status;
}

/* The edited program must be refused with these words, and the copy is given up. */
static void refused(copy *c, const char *words) {
    mt_error error = {0};
    const mt_status status = open_again(c, &error);
    if (status == MT_OK) fail_msg("accepted, expected: %s", words);
    if (!strstr(error.message, words))
        fail_msg("expected '%s', got %s: %s", words, mt_status_name(status), error.message);
    assert_string_equal(error.where, "edited"); /* also where an op's text is wrong */
    copy_free(c);
}

/* ---- files ---- */

static void test_save_and_load(void **state) {
    (void)state;
    mt_program *p = small_program(MT_PLACE_STATIC), *q;
    mt_error error = {0};
    char path[TEMPORARY_BYTES + 16];
    snprintf(path, sizeof path, "%s/p.mono", folder);
    check_status(mt_program_save(p, path, &error), &error);
    check_status(mt_program_load(&q, path, &error), &error);
    assert_int_equal(q->header->file_bytes, p->header->file_bytes);
    assert_memory_equal(q->header, p->header, p->header->file_bytes);
    assert_int_equal(mt_program_instruction_count(q), p->instructions_count);
    assert_int_equal(mt_program_tensor_count(q), 3);
    mt_tensor_info info;
    for (size_t i = 0; i < 3; i++) {
        check_status(mt_program_tensor(q, i, &info, &error), &error);
        assert_string_equal(info.type, "f32");
        assert_int_equal(info.rank, 2);
        assert_int_equal(info.bytes, info.extent[0] * info.extent[1] * 4);
        assert_true(strstr("xky", info.name) != NULL);
    }
    assert_int_equal(mt_program_tensor(q, 3, &info, &error), MT_E_ARGUMENT);
    assert_non_null(strstr(error.message, "no tensor 3; the program has 3"));
    mt_program_destroy(q);

    assert_int_equal(mt_program_load(&q, folder, &error), MT_E_IO); /* a folder */
    assert_null(q);
    assert_int_equal(truncate(path, 0), 0);
    assert_int_equal(mt_program_load(&q, path, &error), MT_E_FORMAT);
    assert_non_null(strstr(error.message, "empty"));
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mt_program_load(&q, path, &error), MT_E_IO);
    mt_program_destroy(p);
    mt_program_destroy(NULL);
}

static void test_header(void **state) {
    (void)state;
    mt_program *p = small_program(MT_PLACE_STATIC), *q;
    mt_error error = {0};
    copy c;
    c = copy_of(p), c.header->magic[3] = 'X', refused(&c, "does not begin with");
    c = copy_of(p), c.header->version = 2, refused(&c, "version 2; this build reads version 1");
    c = copy_of(p), c.header->header_bytes = 8, refused(&c, "header says");
    c = copy_of(p), c.header->file_bytes += 64, refused(&c, "cut off or damaged");
    c = copy_of(p), c.header->placement = 2, refused(&c, "placement 2");
    c = copy_of(p), c.header->placement = MT_PLACE_QUEUE, refused(&c, "no order of its own");
    c = copy_of(p), c.header->processor_count = 3, refused(&c, "2 processors, not 3");
    c = copy_of(p), c.header->processor_count = 0, refused(&c, "0 processors");
    c = copy_of(p), c.header->slot_bytes += 1 << 20, refused(&c, "of which only");
    c = copy_of(p), c.header->slot_bytes -= 128, refused(&c, "past the slots");
    c = copy_of(p), c.header->tensors.offset += 64, refused(&c, "begins at byte");
    c = copy_of(p), c.header->tensors.count = UINT64_MAX / 88, refused(&c, "past the file's end");
    c = copy_of(p), c.header->instructions.count = 1ull << 60, refused(&c, "past the file's end");
    c = copy_of(p), c.header->strings.count = 0, refused(&c, "begins at byte");
    c = copy_of(p), c.bytes[c.size - 1] = 1, refused(&c, "unknown bytes");
    c = copy_of(p), c.bytes[sizeof(program_header)] = 1, refused(&c, "padding before section 'strings'");
    c = copy_of(p), c.bytes[300]++;
    assert_int_equal(program_open_memory(&q, c.bytes, c.size, "damaged", &error), MT_E_FORMAT);
    assert_non_null(strstr(error.message, "its hash is wrong"));
    assert_string_equal(error.where, "damaged");
    copy_free(&c);
    uint8_t *odd = malloc(p->header->file_bytes + 1);
    memcpy(odd + 1, p->header, p->header->file_bytes);
    assert_int_equal(program_open_memory(&q, odd + 1, p->header->file_bytes, "odd", &error), MT_E_ARGUMENT);
    free(odd);
    mt_program_destroy(p);
}

/* Every length, in a block of just that many bytes: reading behind it is caught by the sanitizer. */
static void test_truncated(void **state) {
    (void)state;
    mt_program *p = small_program(MT_PLACE_STATIC), *q;
    for (size_t size = 0; size < p->header->file_bytes; size++) {
        uint8_t *bytes = malloc(size ? size : 1);
        memcpy(bytes, p->header, size);
        assert_int_not_equal(program_open_memory(&q, bytes, size, NULL, NULL), MT_OK);
        assert_null(q);
        if (size > sizeof(program_header)) { /* the same with a header that agrees */
            ((program_header *)bytes)->file_bytes = size;
            seal(bytes, size);
            if (program_open_memory(&q, bytes, size, NULL, NULL) == MT_OK) { /* only the padding at the end may go */
                assert_true(size > p->header->processors.offset);
                program_free(q);
            }
        }
        free(bytes);
    }
    mt_program_destroy(p);
}

static void read_all(const mt_program *p) {
    char *out;
    mt_error error;
    if (mt_program_summary(p, &out, &error) == MT_OK) free(out);
    if (mt_program_disassemble(p, 0, SIZE_MAX, &out, &error) == MT_OK) free(out);
    for (size_t i = 0; i < p->instructions_count; i += 5)
        if (mt_program_inspect(p, i, &out, &error) == MT_OK) free(out);
}

/* Every byte flipped: refused by its hash; with the hash put right, refused or a program that can be read. */
static void test_flipped(void **state) {
    (void)state;
    mt_program *p = small_program(MT_PLACE_STATIC), *q;
    const size_t size = p->header->file_bytes;
    uint8_t *bytes = malloc(size);
    size_t accepted = 0;
    random_state = 1;
    for (size_t i = 0; i < size; i++) {
        memcpy(bytes, p->header, size);
        bytes[i] ^= (uint8_t)(1u << draw(8));
        const bool slack = i >= offsetof(program_header, slot_bytes) && i < offsetof(program_header, slot_bytes) + 8;
        mt_error error = {0};
        if (program_open_memory(&q, bytes, size, "flipped", &error) == MT_OK) {
            assert_true(slack); /* a few bytes more of memory do no harm */
            program_free(q);
        } else {
            assert_true(error.message[0] && error.code != MT_E_INTERNAL);
        }
        seal(bytes, size);
        if (program_open_memory(&q, bytes, size, "flipped", &error) != MT_OK) continue;
        accepted++;
        read_all(q);
        program_free(q);
    }
    assert_true(accepted < size / 4); /* letters in names and comments, numbers in texts */
    free(bytes);
    mt_program_destroy(p);
}

/* ---- wrong in one place ---- */

static void test_tables(void **state) {
    (void)state;
    mt_program *p = small_program(MT_PLACE_STATIC);
    copy c;
#define WRONG(words, ...) c = copy_of(p), __VA_ARGS__, refused(&c, words)
    WRONG("no name or no text", TABLE(&c, ops, program_op)[1].text = (uint32_t)p->strings_count);
    WRONG("no name or no text", TABLE(&c, ops, program_op)[1].name = 0);
    WRONG("1:1: expected 'tile' or 'format'", TABLE(&c, strings, char)[p->ops[0].text] = '(');
    WRONG("past the table", TABLE(&c, ops, program_op)[0].constant_count = UINT32_MAX);
    WRONG("reserved field", TABLE(&c, ops, program_op)[0].reserved = 1);
    WRONG("is not the one that the program was compiled with", TABLE(&c, ops, program_op)[0].hash[1]++);
    WRONG("is not the one that the program was compiled with", TABLE(&c, constants, program_constant)[0].value++);
    WRONG("its range 3 .. 2 is empty", TABLE(&c, lives, program_live)[0].least = 3,
          TABLE(&c, lives, program_live)[0].most = 2);
    WRONG("name is missing", TABLE(&c, lives, program_live)[0].name = 0);
    WRONG("role 5", TABLE(&c, tensors, program_tensor)[0].role = 5);
    WRONG("rank 6", TABLE(&c, tensors, program_tensor)[0].rank = 6);
    WRONG("not unique", TABLE(&c, tensors, program_tensor)[1].name = p->tensors[0].name);
    WRONG("it is bound", TABLE(&c, tensors, program_tensor)[0].offset = 0);
    WRONG("there is no type", TABLE(&c, tensors, program_tensor)[0].format = p->tensors[0].name);
    WRONG("bytes; its shape and type need", TABLE(&c, tensors, program_tensor)[0].bytes++);
    WRONG("has extent", TABLE(&c, tensors, program_tensor)[0].extent[0] = INT64_MAX);
    WRONG("has extent -1", TABLE(&c, tensors, program_tensor)[0].extent[0] = -1);
    WRONG("no such live value", TABLE(&c, tensors, program_tensor)[0].live[0] = 1);
    WRONG("live value 'pos' can leave the range", TABLE(&c, lives, program_live)[0].most = 5,
          TABLE(&c, tensors, program_tensor)[0].live[0] = 0);
    WRONG("no tensor", TABLE(&c, operands, program_operand)[0].tensor = (uint32_t)p->tensors_count);
    WRONG("outside its tensor", TABLE(&c, operands, program_operand)[0].offset = 1);
    WRONG("outside its tensor", TABLE(&c, operands, program_operand)[0].offset = -1);
    WRONG("outside its tensor", TABLE(&c, operands, program_operand)[0].stride[0] = INT64_MAX);
    WRONG("outside its tensor", TABLE(&c, operands, program_operand)[0].stride[0] = -1);
    WRONG("outside its tensor", TABLE(&c, operands, program_operand)[0].extent[0] = INT64_MAX);
    WRONG("not contiguous", TABLE(&c, operands, program_operand)[0].stride[1] = 0);
    WRONG("arrivals at barrier 0, which has", TABLE(&c, barriers, program_barrier)[0].arrivals++);
    WRONG("0 arrivals", TABLE(&c, barriers, program_barrier)[0].arrivals = 0);
    WRONG("no op", TABLE(&c, nodes, program_node)[0].op = 100);
    WRONG("not behind those of the node before", TABLE(&c, nodes, program_node)[1].first--);
    WRONG("not in its node's range", TABLE(&c, nodes, program_node)[0].count--);
    WRONG("its opcode is", TABLE(&c, instructions, program_instruction)[0].opcode = 1);
    WRONG("no node", TABLE(&c, instructions, program_instruction)[0].node = 100);
    WRONG("7 waits", TABLE(&c, instructions, program_instruction)[0].wait_count = 7);
    WRONG("no operand", TABLE(&c, instructions, program_instruction)[0].tensor[1] = 1000);
    WRONG("more operands than", TABLE(&c, instructions, program_instruction)[0].tensor[9] = 1);
    WRONG("names barrier", TABLE(&c, instructions, program_instruction)[0].arrive[0] = 1000);
    WRONG("names barrier", TABLE(&c, instructions, program_instruction)[0].wait[5] = 1);
    WRONG("outside its op's grid", TABLE(&c, instructions, program_instruction)[0].index[0] = 2);
    WRONG("outside its op's grid", TABLE(&c, instructions, program_instruction)[0].index[0] = -1);
    WRONG("more indices", TABLE(&c, instructions, program_instruction)[0].index[4] = 1);
    WRONG("is in the program twice", TABLE(&c, instructions, program_instruction)[1].index[0] = 0);
    WRONG("differ from those of its node's first", TABLE(&c, instructions, program_instruction)[1].arg[0]++);
    WRONG("order must ascend", TABLE(&c, order, uint32_t)[0] = p->order[1],
          TABLE(&c, order, uint32_t)[1] = p->order[0]);
    WRONG("on two processors", TABLE(&c, order, uint32_t)[0] = p->order[p->processors[1].first]);
    WRONG("does not follow", TABLE(&c, processors, program_processor)[1].first++);
    WRONG("entry 1 of the order", TABLE(&c, order, uint32_t)[1] = 1u << 31);
#undef WRONG
    mt_program_destroy(p);
}

static size_t find_instruction(const mt_program *p, const char *node_name, int nth) {
    for (size_t i = 0; i < p->instructions_count; i++)
        if (p->instructions[i].opcode != PROGRAM_JOIN &&
            !strcmp(program_string(p, p->nodes[p->instructions[i].node].name), node_name) && !nth--)
            return i;
    fail_msg("no such node: %s", node_name);
    return 0;
}

static uint32_t find_tensor(const mt_program *p, const char *name) {
    for (uint32_t t = 0; t < p->tensors_count; t++)
        if (!strcmp(program_string(p, p->tensors[t].name), name)) return t;
    fail_msg("no such tensor: %s", name);
    return 0;
}

static void test_order(void **state) {
    (void)state;
    mt_program *p = small_program(MT_PLACE_QUEUE);
    copy c;
    program_instruction *n;
    assert_int_equal(p->order_count, 0);

    c = copy_of(p); /* a missing wait: the message names both sides and the tensor */
    n = &TABLE(&c, instructions, program_instruction)[find_instruction(p, "second", 1)];
    while (n->wait_count) remove_wait(n, 0);
    mt_error error = {0};
    assert_int_equal(open_again(&c, &error), MT_E_FORMAT);
    assert_string_equal(error.where, "edited");
    assert_memory_equal(error.message, "s: ", 3);
    assert_non_null(
        strstr(error.message,
               "(copy 'second' [0, 1, 0, 0, 0]) reads s[0:2, 4:6] without waiting for instruction 0 (scale 'first'"));
    assert_non_null(strstr(error.message, "which writes s[0:2, 0:6]"));
    copy_free(&c);

    c = copy_of(p); /* a wrong target */
    TABLE(&c, instructions, program_instruction)[find_instruction(p, "second", 0)].target[0]++;
    refused(&c, "waits for 2 arrivals at barrier");

    c = copy_of(p); /* the last arrival is missing */
    remove_arrival(&TABLE(&c, instructions, program_instruction)[find_instruction(p, "first", 0)], 0);
    refused(&c, "instructions arrive there");

    c = copy_of(p); /* waits on itself */
    n = &TABLE(&c, instructions, program_instruction)[find_instruction(p, "second", 0)];
    n->wait[0] = n->arrive[0], n->target[0] = p->barriers[n->arrive[0]].arrivals;
    refused(&c, "it may never start");

    c = copy_of(p); /* a cycle: the first waits for what comes after it */
    n = &TABLE(&c, instructions, program_instruction)[0];
    n->wait_count = 1, n->wait[0] = p->instructions[find_instruction(p, "third", 0)].arrive[0],
    n->target[0] = p->barriers[n->wait[0]].arrivals;
    refused(&c, "it may never start");

    c = copy_of(p);
    n = &TABLE(&c, instructions, program_instruction)[find_instruction(p, "third", 0)];
    n->wait_count = 2, n->wait[1] = n->wait[0], n->target[1] = n->target[0];
    refused(&c, "waits twice");

    c = copy_of(
        p); /* slots that overlap although their users are not ordered: x and c of the third node, s in c's place */
    const uint32_t from = find_tensor(p, "c"), to = find_tensor(p, "t");
    TABLE(&c, tensors, program_tensor)[to].offset = p->tensors[from].offset;
    refused(&c, "without waiting for");

    c = copy_of(p); /* a program may not write its inputs */
    TABLE(&c, tensors, program_tensor)[find_tensor(p, "y")].role = MT_INPUT;
    refused(&c, "is an input or a weight");

    c = copy_of(p); /* positions that can pass the end */
    TABLE(&c, lives, program_live)[0].most = INT32_MAX;
    check_status(open_again(&c, &error), &error); /* out of range is not written: harmless */
    copy_free(&c);
    mt_program_destroy(p);
}

/* Instructions of one node that touch the same memory must be numbered as the language says. */
static void test_grid_order(void **state) {
    (void)state;
    mt_graph *g;
    mt_error error = {0};
    check_status(mt_graph_create(&g, &error), &error);
    const mt_tensor x = tensor(g, MT_INPUT, "x", "f32", 2, 6), y = tensor(g, MT_OUTPUT, "y", "f32", 2, 1);
    NODE(g, "split", "sum", MT_OPERAND("x", x), MT_OPERAND("y", y), MT_OPERAND_INTEGER("BR", 2),
         MT_OPERAND_INTEGER("BK", 2));
    mt_program *p = compile(g, 1, MT_PLACE_QUEUE);
    assert_int_equal(p->instructions_count, 3);
    copy c = copy_of(p);
    TABLE(&c, instructions, program_instruction)[0].index[1] = 1;
    TABLE(&c, instructions, program_instruction)[1].index[1] = 0;
    refused(&c, "not numbered in grid order");
    c = copy_of(p);
    remove_wait(&TABLE(&c, instructions, program_instruction)[2], 0);
    refused(&c, "y[0:2, 0:1] without waiting for instruction");
    mt_program_destroy(p);
}

/* ---- regions ---- */

/* Random views and boxes: a region holds every element, and is the exact hull where the view only slices and splits. */
static void test_regions(void **state) {
    (void)state;
    random_state = 7;
    for (int round = 0; round < 20000; round++) {
        program_tensor t = {.role = MT_STATE, .rank = (uint8_t)(1 + draw(3)), .offset = -1};
        static const char *const types[] = {"f32", "u4", "i1", "u3"};
        const tile_format *f = tile_format_find(types[draw(4)]);
        int64_t elements = 1, strides[PROGRAM_RANK];
        for (int d = t.rank - 1; d >= 0; d--) strides[d] = elements, elements *= t.extent[d] = 1 + draw(6);
        t.bytes = tile_format_bytes(f, elements);
        program_operand o = {.rank = (uint8_t)(1 + draw(3))};
        const bool plain = draw(2) && o.rank >= t.rank; /* slices, the first dimension perhaps split */
        if (plain) {
            o.rank = t.rank;
            for (int d = 0; d < t.rank; d++) {
                const int64_t begin = draw((uint32_t)t.extent[d]);
                o.extent[d] = 1 + draw((uint32_t)(t.extent[d] - begin));
                o.stride[d] = strides[d];
                o.offset += begin * strides[d];
            }
            if (o.extent[0] % 2 == 0 && o.rank < 3) {
                memmove(o.extent + 1, o.extent, 4 * sizeof *o.extent),
                    memmove(o.stride + 1, o.stride, 4 * sizeof *o.stride);
                o.extent[0] = 2, o.extent[1] /= 2, o.stride[0] = o.stride[1] * o.extent[1], o.rank++;
            }
        } else {
            o.offset = draw((uint32_t)elements);
            for (int d = 0; d < o.rank; d++) {
                o.extent[d] = 1 + draw(4);
                o.stride[d] = d == o.rank - 1 ? 1 : draw(8);
            }
        }
        for (int d = 0; d < PROGRAM_RANK; d++) o.live[d] = t.live[d] = PROGRAM_NONE;
        mt_program p = {
            .strings = "", .strings_count = 1, .tensors = &t, .tensors_count = 1, .operands = &o, .operands_count = 1};
        program_view v;
        int64_t last = o.offset;
        for (int d = 0; d < o.rank; d++) last += (o.extent[d] - 1) * o.stride[d];
        const mt_status status = program_view_make(&p, &o, f, &v, NULL);
        assert_int_equal(status, last < elements ? MT_OK : MT_E_FORMAT);
        if (status != MT_OK) continue;
        tile_box box = {.rank = o.rank, .reads = true};
        for (int d = 0; d < o.rank; d++) {
            box.dim[d].low = draw((uint32_t)o.extent[d]);
            box.dim[d].high = box.dim[d].low + 1 + draw((uint32_t)(o.extent[d] - box.dim[d].low));
            box.dim[d].offset_live = -1;
        }
        program_region r;
        program_instruction n = {0};
        tile_instance instance = {0};
        program_view_region(&v, &instance, &n, &box, &r);
        int64_t low[PROGRAM_RANK], high[PROGRAM_RANK] = {0}, first = INT64_MAX, end = 0, at[PROGRAM_RANK];
        for (int d = 0; d < PROGRAM_RANK; d++) low[d] = INT64_MAX, at[d] = box.dim[d].low;
        for (int d = 0; d >= 0;) {
            int64_t element = o.offset;
            for (int k = 0; k < o.rank; k++) element += at[k] * o.stride[k];
            for (int k = 0; k < t.rank; k++) {
                const int64_t place = element / strides[k] % t.extent[k];
                low[k] = min_i64(low[k], place), high[k] = max_i64(high[k], place + 1);
                assert_true(place >= r.low[k] && place < r.high[k]);
            }
            first = min_i64(first, element * f->bits / 8), end = max_i64(end, (element * f->bits + f->bits + 7) / 8);
            for (d = o.rank - 1; d >= 0 && ++at[d] == box.dim[d].high; d--) at[d] = box.dim[d].low;
        }
        assert_true(r.first <= first && r.last >= end && r.first >= 0 && r.last <= t.bytes);
        if (!plain || f->bits != 32) continue;
        for (int k = 0; k < t.rank; k++) assert_true(r.low[k] == low[k] && r.high[k] == high[k]);
        assert_true(r.first == first && r.last == end);
    }
}

/* ---- texts ---- */

static void test_texts(void **state) {
    (void)state;
    mt_program *p = small_program(MT_PLACE_STATIC);
    mt_error error = {0};
    char *out;
    check_status(mt_program_summary(p, &out, &error), &error);
    assert_non_null(strstr(out, "in 5 nodes for 2 processors, placement static"));
    assert_non_null(strstr(out, "pos in 0 .. 3"));
    assert_non_null(strstr(out, "x scale[R = 4, C = 6, BR = 2]"));
    free(out);
    check_status(mt_program_disassemble(p, 0, 1, &out, &error), &error);
    assert_non_null(strstr(out, "0  scale [0]  x = x, a = 0.5, y = s  | arrive 0\n"));
    free(out);
    check_status(mt_program_disassemble(p, 0, SIZE_MAX, &out, &error), &error);
    size_t lines = 0;
    for (const char *at = out; *at; at++) lines += *at == '\n';
    assert_int_equal(lines, p->instructions_count);
    assert_non_null(strstr(out, "put [0]  x = t, pos = live pos, y = k"));
    free(out);
    assert_int_equal(mt_program_disassemble(p, 1000, 1, &out, &error), MT_E_ARGUMENT);
    check_status(mt_program_disassemble(p, p->instructions_count, 1, &out, &error), &error);
    assert_string_equal(out, "");
    free(out);
    check_status(mt_program_inspect(p, find_instruction(p, "fourth", 1), &out, &error), &error);
    assert_non_null(strstr(out, "of node 'fourth'\nop "));
    assert_non_null(strstr(out, "grid point [m = 1]"));
    assert_non_null(strstr(out, "  reads t[1:2, 0:6]\n"));
    assert_non_null(strstr(out, "  writes k[pos + 1:pos + 2, 0:6]\n"));
    assert_non_null(strstr(out, "24 bytes read, 24 bytes written"));
    assert_non_null(strstr(out, "because this reads t[1:2, 0:6], and "));
    assert_non_null(strstr(out, "(take 'fifth')"));
    free(out);
    check_status(mt_program_inspect(p, 0, &out, &error), &error);
    assert_non_null(strstr(out, "waits on nothing"));
    free(out);
    assert_int_equal(mt_program_inspect(p, 1000, &out, &error), MT_E_ARGUMENT);
    mt_program_destroy(p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_save_and_load), cmocka_unit_test(test_header),  cmocka_unit_test(test_truncated),
        cmocka_unit_test(test_flipped),       cmocka_unit_test(test_tables),  cmocka_unit_test(test_order),
        cmocka_unit_test(test_grid_order),    cmocka_unit_test(test_regions), cmocka_unit_test(test_texts),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
