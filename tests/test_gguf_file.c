/* GGUF files: what the system may refuse, split models, and files that PyPI's gguf package writes and reads
 * (oracle_gguf.py). */
#include "gguf_writer.h"

#include <sys/stat.h>
#include <sys/wait.h>

#include "temporary.h"

static char folder[TEMPORARY_BYTES];

static int make_folder(void **state) {
    (void)state;
    return temporary_make(folder) ? 0 : -1;
}

static int remove_folder(void **state) {
    (void)state;
    return temporary_remove(folder);
}

static const char *in_folder(const char *name) {
    static char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static void expect_file(const char *name, mt_status status, const char *where, const char *part) {
    gguf *g;
    mt_error error = {0};
    const mt_status got = gguf_open(&g, in_folder(name), &error);
    if (got != status || error.code != got || g || !strstr(error.message, part) || !strstr(error.where, where))
        fail_msg("expected %s \"%s\"; got %s \"%s\" in %s", mt_status_name(status), part, mt_status_name(got),
                 error.message, error.where);
}

static void test_files(void **state) {
    (void)state;
    expect_file("absent.gguf", MT_E_IO, "absent.gguf", "No such file");
    assert_int_equal(file_write_atomic(in_folder("empty.gguf"), "", 0, NULL), MT_OK);
    expect_file("empty.gguf", MT_E_FORMAT, "empty.gguf", "the file is empty");
    assert_int_equal(mkdir(in_folder("folder.gguf"), 0700), 0);
    expect_file("folder.gguf", MT_E_IO, "folder.gguf", "directory");
    assert_int_equal(mkfifo(in_folder("pipe.gguf"), 0600), 0);
    expect_file("pipe.gguf", MT_E_IO, "pipe.gguf", "not a regular file");
    text bytes = everything(3);
    assert_int_equal(file_write_atomic(in_folder("good.gguf"), bytes.data, bytes.length, NULL), MT_OK);
    assert_int_equal(file_write_atomic(in_folder("cut.gguf"), bytes.data, bytes.length - 1, NULL), MT_OK);
    expect_file("cut.gguf", MT_E_FORMAT, "cut.gguf", "truncated");
    gguf *g;
    assert_int_equal(gguf_open(&g, in_folder("good.gguf"), NULL), MT_OK);
    const gguf_tensor *t = gguf_find_tensor(g, "cube");
    assert_int_equal((uintptr_t)t->data % 256, 0);
    assert_int_equal(t->data[119], (uint8_t)(119 * 7 + 4));
    gguf_close(g);
    gguf_close(NULL);
    text_free(&bytes);
}

/* One part of a split model with one tensor, written as `name`. A negative number leaves its key out. */
static void write_part(const char *name, int number, int count, int tensors, const char *tensor) {
    writer w = writer_new();
    if (number >= 0) put(put_key(&w, "split.no", GGUF_U16), (uint64_t)number, 2);
    if (count >= 0) put(put_key(&w, "split.count", GGUF_U16), (uint64_t)count, 2);
    if (tensors >= 0) put(put_key(&w, "split.tensors.count", GGUF_I32), (uint64_t)tensors, 4);
    put_string(put_key(&w, "name", GGUF_STRING), name);
    put_tensor(&w, tensor, EXTENTS(3), 0, 12);
    text bytes = finish(&w);
    assert_int_equal(file_write_atomic(in_folder(name), bytes.data, bytes.length, NULL), MT_OK);
    text_free(&bytes);
}

static void test_split(void **state) {
    (void)state;
    const char *const one = "m-00001-of-00003.gguf", *const two = "m-00002-of-00003.gguf";
    const char *const three = "m-00003-of-00003.gguf";
    write_part(one, 0, 3, 3, "a");
    expect_file(one, MT_E_IO, two, "No such file");
    write_part(two, 1, 3, 3, "b");
    write_part(three, 2, 3, 3, "c");
    gguf *g;
    mt_error error = {0};
    if (gguf_open(&g, in_folder(one), &error) != MT_OK) fail_msg("%s: %s", error.where, error.message);
    size_t count;
    const gguf_tensor *tensors = gguf_tensors(g, &count);
    assert_int_equal(count, 3);
    assert_int_equal(gguf_part_count(g), 3);
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(tensors[i].part, i);
        assert_int_equal(tensors[i].name[0], 'a' + (int)i);
        assert_int_equal(tensors[i].data[11], 11 * 7 + 1);
    }
    gguf_string s;
    assert_int_equal(gguf_get_string(g, "name", &s, NULL, NULL), MT_OK);
    assert_memory_equal(s.data, one, s.length);
    gguf_close(g);

    expect_file(two, MT_E_ARGUMENT, two, "part 2 of a split model: open its first part");
    write_part("renamed.gguf", 0, 3, 3, "a");
    expect_file("renamed.gguf", MT_E_FORMAT, "renamed.gguf", "does not end in '-00001-of-00003.gguf'");
    write_part(three, 2, 3, 3, "a");
    expect_file(one, MT_E_FORMAT, three, "'a' is defined twice");
    write_part(three, 1, 3, 3, "c");
    expect_file(one, MT_E_FORMAT, three, "must be part 3 of 3, but it says that it is part 2");
    write_part(three, 2, 4, 3, "c");
    expect_file(one, MT_E_FORMAT, three, "'split.count' holds 4");
    write_part(three, 2, 3, 4, "c");
    expect_file(one, MT_E_FORMAT, three, "'split.tensors.count' holds 4");
    write_part(three, -1, 3, 3, "c");
    expect_file(one, MT_E_FORMAT, three, "'split.no' is missing");
    write_part(three, 2, -1, 3, "c");
    expect_file(one, MT_E_FORMAT, three, "'split.count' is missing");
    assert_int_equal(truncate(in_folder(three), 100), 0);
    expect_file(one, MT_E_FORMAT, three, "the file ends inside");
    assert_int_equal(truncate(in_folder(three), 0), 0);
    expect_file(one, MT_E_FORMAT, three, "empty");
    write_part(one, 0, 3, 5, "a");
    write_part(two, 1, 3, 5, "b");
    write_part(three, 2, 3, 5, "c");
    expect_file(one, MT_E_FORMAT, one, "the 3 parts hold 3 tensors, but split.tensors.count is 5");
    write_part(one, 0, 3, -1, "a");
    expect_file(one, MT_E_FORMAT, one, "'split.tensors.count' is missing");
    write_part(one, 3, 3, 3, "a");
    expect_file(one, MT_E_FORMAT, one, "part 4 of 3");
    write_part(one, 0, 65535, 3, "a");
    expect_file(one, MT_E_FORMAT, one, "'-00001-of-65535.gguf'");
    write_part("merged.gguf", 0, 0, 1, "a");
    assert_int_equal(gguf_open(&g, in_folder("merged.gguf"), NULL), MT_OK);
    gguf_close(g);

    write_part(one, 0, 3, 3, "a");
    text bytes = {0};
    assert_int_equal(file_read(&bytes, in_folder(one), 1 << 20, NULL), MT_OK);
    expect(bytes, MT_E_UNSUPPORTED, "one of 3 parts");
}

/* The oracle ------------------------------------------------------------------------------------------------------- */

static void dump_value(text *out, const gguf_value *v) {
    int64_t n;
    if (v->kind == GGUF_STRING) {
        text_string(out, " x");
        for (size_t i = 0; i < v->string.length; i++) text_printf(out, "%02x", (uint8_t)v->string.data[i]);
    } else if (v->kind == GGUF_F32 || v->kind == GGUF_F64) {
        text_printf(out, " %a", v->f);
    } else if (v->kind == GGUF_BOOL || !gguf_value_i64(v, &n)) {
        text_printf(out, " %llu", (unsigned long long)v->u);
    } else {
        text_printf(out, " %lld", (long long)n);
    }
}

/* What oracle_gguf.py prints with "dump". */
static void dump(text *out, const gguf *g) {
    size_t count;
    const gguf_entry *entries = gguf_entries(g, &count);
    for (size_t i = 0; i < count; i++) {
        const gguf_value *v = &entries[i].value;
        const bool array = v->kind == GGUF_ARRAY;
        text_printf(out, "key %s %s%s", entries[i].key, array ? "array " : "",
                    gguf_kind_name(array ? v->array.kind : v->kind));
        if (!array) dump_value(out, v);
        for (uint64_t k = 0; array && k < v->array.count; k++) {
            const gguf_value element = gguf_element(v, k);
            dump_value(out, &element);
        }
        text_string(out, "\n");
    }
    const gguf_tensor *t = gguf_tensors(g, &count);
    for (; count--; t++) {
        uint64_t sum = 0;
        for (size_t k = 0; k < t->bytes; k++) sum += t->data[k];
        text_printf(out, "tensor %s %s %u %llu %zu %llu", t->name, t->format->name, t->part,
                    (unsigned long long)t->offset, t->bytes, (unsigned long long)sum);
        for (int d = 0; d < t->rank; d++) text_printf(out, " %lld", (long long)t->extent[d]);
        text_string(out, "\n");
    }
}

/* Runs oracle_gguf.py; its output, when wanted, is appended to *out. Returns its exit status. */
static int run_oracle(const char *arguments, text *out) {
    const char *python = getenv("MONOTILE_PYTHON");
    text command = {0};
    text_printf(&command, "'%s' '%s/tests/oracle_gguf.py' %s", python && *python ? python : "python3",
                MONOTILE_SOURCE_FOLDER, arguments);
    FILE *pipe = popen(command.data, "r");
    assert_non_null(pipe);
    char block[4096];
    for (size_t n; (n = fread(block, 1, sizeof block, pipe)) > 0;)
        if (out) text_append(out, block, n);
    const int status = pclose(pipe);
    text_free(&command);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* Two texts, compared line by line: a hexadecimal float may be written in two ways. */
static void compare(char *ours, char *theirs) {
    char *our_rest, *their_rest;
    char *our_line = strtok_r(ours, "\n", &our_rest), *their_line = strtok_r(theirs, "\n", &their_rest);
    while (our_line && their_line) {
        char *a, *b, *our_word = strtok_r(our_line, " ", &a), *their_word = strtok_r(their_line, " ", &b);
        for (; our_word && their_word; our_word = strtok_r(NULL, " ", &a), their_word = strtok_r(NULL, " ", &b)) {
            if (strstr(their_word, "0x"))
                assert_true(strtod(our_word, NULL) == strtod(their_word, NULL));
            else
                assert_string_equal(our_word, their_word);
        }
        assert_true(!our_word && !their_word);
        our_line = strtok_r(NULL, "\n", &our_rest);
        their_line = strtok_r(NULL, "\n", &their_rest);
    }
    assert_true(!our_line && !their_line);
}

static void test_oracle(void **state) {
    (void)state;
    char arguments[2048];
    snprintf(arguments, sizeof arguments, "write '%s'", folder);
    const int status = run_oracle(arguments, NULL);
    if (status == 3 && !getenv("MONOTILE_PYTHON")) skip(); /* no gguf package, and nobody said where one is */
    assert_int_equal(status, 0);
    for (int split = 0; split < 2; split++) {
        gguf *g;
        mt_error error = {0};
        const char *path = in_folder(split ? "split-00001-of-00004.gguf" : "whole.gguf");
        if (gguf_open(&g, path, &error) != MT_OK) fail_msg("%s: %s", error.where, error.message);
        assert_int_equal(gguf_part_count(g), split ? 4 : 1);
        text ours = {0}, theirs = {0};
        dump(&ours, g);
        snprintf(arguments, sizeof arguments, split ? "dump '%s'/split-*.gguf" : "dump '%s'/whole.gguf", folder);
        assert_int_equal(run_oracle(arguments, &theirs), 0);
        assert_false(ours.failed || theirs.failed);
        compare(ours.data, theirs.data);
        text_free(&ours);
        text_free(&theirs);
        gguf_close(g);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_files),
        cmocka_unit_test(test_split),
        cmocka_unit_test(test_oracle),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
