/* The instruction library: the embedded files, parsed once per process and joined into one; and finding things in
 * files. */
#include "tile/library.h"

#include "tile/ast.h"

#include <pthread.h>

static struct {
    pthread_once_t once;
    tile_file file; /* the tiles and formats of all files */
    mt_status status;
    mt_error error;
} library = {.once = PTHREAD_ONCE_INIT};

/* Parsing needs no names from other files, so that the order of the files does not matter: types are looked up when a
 * program is bound. The parsed files live as long as the process. */
static void load(void) {
    ast_tile **tiles = &library.file.tiles;
    ast_format **formats = &library.file.formats;
    for (unsigned i = 0; i < library_file_count; i++) {
        const struct embedded_file *source = &library_files[i];
        tile_file *file;
        library.status = tile_parse(&file, source->name, source->text, source->length, NULL, &library.error);
        if (library.status) return;
        *tiles = file->tiles;
        while (*tiles) tiles = &(*tiles)->next;
        *formats = file->formats;
        while (*formats) formats = &(*formats)->next;
    }
    library.file.path = "the instruction library";
    library.file.text = "";
}

mt_status tile_library(const tile_file **out, mt_error *error) {
    pthread_once(&library.once, load);
    *out = library.status ? NULL : &library.file;
    if (library.status && error) *error = library.error;
    return library.status;
}

static const tile_format *find_in(const tile_file *f, const char *name) {
    for (const ast_format *i = f->formats; i; i = i->next)
        if (*i->format->name == *name && !strcmp(i->format->name, name)) return i->format;
    return NULL;
}

const tile_format *tile_format_find(const char *name) {
    const tile_format *scalar = tile_format_scalar(name, strlen(name));
    const tile_file *all;
    return scalar ? scalar : tile_library(&all, NULL) == MT_OK ? find_in(all, name) : NULL;
}

const tile_format *tile_file_find_format(const tile_file *f, const char *name) {
    const tile_format *own = f == &library.file ? NULL : find_in(f, name);
    return own ? own : tile_format_find(name);
}

bool tile_format_same(const tile_format *a, const tile_format *b) {
    return a == b || (a->body && b->body && !strcmp(a->name, b->name) && !strcmp(a->body->text, b->body->text));
}

size_t tile_file_count(const tile_file *f) {
    size_t count = 0;
    for (const ast_tile *t = f->tiles; t; t = t->next) count++;
    return count;
}

const char *tile_file_name(const tile_file *f, size_t i) {
    const ast_tile *t = f->tiles;
    while (t && i--) t = t->next;
    return t ? t->name : NULL;
}

const char *tile_file_doc(const tile_file *f, const char *name) {
    for (const ast_tile *t = f->tiles; t; t = t->next)
        if (!strcmp(t->name, name)) return t->doc;
    return "";
}

static int copy_steps(const ast_step *s, tile_step *out) {
    int count = 0;
    for (; s && count < TILE_STEPS; s = s->next) out[count++] = s->step;
    return count;
}

int tile_equals(const tile_file *f, const char *name, tile_step *out) {
    for (const ast_tile *t = f->tiles; t; t = t->next)
        if (!strcmp(t->name, name)) return copy_steps(t->equals, out);
    return 0;
}

int tile_splits(const tile_file *f, const char *name, tile_step *out) {
    for (const ast_tile *t = f->tiles; t; t = t->next)
        if (!strcmp(t->name, name)) return copy_steps(t->splits, out);
    return 0;
}

size_t tile_file_format_count(const tile_file *f) {
    size_t count = 0;
    for (const ast_format *i = f->formats; i; i = i->next) count++;
    return count;
}

const tile_format *tile_file_format(const tile_file *f, size_t i) {
    const ast_format *format = f->formats;
    while (format && i--) format = format->next;
    return format ? format->format : NULL;
}

/* ---- copies ----------------------------------------------------------------------------------------------------- */

static tile_node *copy_node(arena *a, const tile_node *n) {
    if (!n) return NULL;
    tile_node *copy = ARENA_NEW(a, tile_node);
    if (!copy) return NULL;
    *copy = *n;
    copy->a = copy_node(a, n->a);
    copy->b = copy_node(a, n->b);
    copy->c = copy_node(a, n->c);
    return copy;
}

static const char *copy_string(arena *a, const char *s) { return arena_string(a, s, strlen(s)); }

const tile_format *ast_copy_format(arena *a, const tile_format *f) {
    const tile_file *all;
    if (!tile_format_is_block(f) || (tile_library(&all, NULL) == MT_OK && find_in(all, f->name) == f)) return f;
    tile_format *copy = ARENA_NEW(a, tile_format);
    tile_format_body *body = ARENA_NEW(a, tile_format_body);
    *copy = *f;
    *body = *f->body;
    copy->name = copy_string(a, f->name);
    copy->body = body;
    body->fields = ARENA_ARRAY(a, (size_t)body->field_count, tile_field);
    for (int i = 0; i < body->field_count; i++) {
        body->fields[i] = f->body->fields[i];
        body->fields[i].name = copy_string(a, f->body->fields[i].name);
    }
    body->value = copy_node(a, f->body->value);
    body->text = copy_string(a, f->body->text);
    body->doc = copy_string(a, f->body->doc);
    return copy;
}
