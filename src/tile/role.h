/* The lowered form of an op: what each role of a CTA does, statement by statement. The CUDA emitter prints it, the
 * simulator runs it, people read it (`monotile tile show`). Everything that decides whether a program is right is here
 * and not in a printer: who writes which buffer, where all consumers meet, which bytes of which weight go into which
 * page, in which order both roles walk the pages.
 *
 * Roles. The LOADER (one lane) copies slices of weights into pages, ahead of all waits; where it goes may depend on
 * nothing that the running program writes. Only for the left operands of WIDE products it waits, as the consumers do,
 * until the instruction's barriers are satisfied (emit/cuda_wide.h says why this cannot deadlock). The CONSUMERS
 * (ROLE_WARPS warps) do all the rest. A page goes through the hands of every warp, in the loader's order.
 *
 * Variables. A tile program's variables keep their numbers; the lowering adds its own behind them. A variable has a
 * place:
 *   SCALAR  a value that every thread computes for itself (rank 0)
 *   FUSED   no storage: an expression, computed again wherever it is read. For what is cheap, or read once
 *   BUFFER  in the instruction's shared memory. Buffers whose lifetimes do not meet share bytes
 *   PARTS   no storage of its own: read as the sum (or maximum, ...), in the warps' order, of what every warp left in
 *           a buffer [warps, elements]
 *   REGISTER  level 2 (explicit.h): in the consumers' registers, as its layout says
 *   STAGE     level 2: a stage of a shared tensor, which the last VIEW has named
 *   FRAGMENT  in the consumers' registers, as wgmma leaves its sums (emit/cuda_wide.h). Read element by element alone
 *
 * Consumer statements. Values are trees of tile.h without REDUCE and DOT: those have become statements.
 *   EACH     buffer[...] = value, elements spread over the threads: `spread` says how. The left operand of a product is
 *            an EACH into a buffer of its own; that of a SKINNY is a panel: rows of the product's type, padded with
 *            zeros along k and against bank conflicts
 *   STORE    global slice = value, what is out of range left out. Of indices that come from data, which may be equal,
 *            one thread takes all, in their order
 *   REDUCE   a reduction along an axis: SERIAL, a thread an element; WARP, a warp an element, lanes along the axis;
 *            ALL, all warps an element, each leaves its part
 *   DOT      left · right, where the right operand is read where it lies. On the CUDA cores: ALONG_K, lanes along k,
 *            shuffles; SPLIT_K, lanes along n and warps along k, each warp leaves its part; OUTPUTS, a thread some
 *            outputs. On the tensor cores, the left operand in a panel: TENSOR_ALONG_K, a warp 16 columns of the
 *            result; TENSOR_SPLIT_K, a warp every eighth 16 steps of k, each warp leaves its part
 *   SKINNY   panel · pages on the tensor cores, every warp a slice of k of every page, each warp leaves its part
 *   WIDE     pages · pages on wgmma: a tile of 64 or 128 rows, sums in FRAGMENTs. Weights of a block format come as
 *            blocks in pages, and are decoded into a buffer that wgmma reads. STORE (and what is FUSED into it) goes on
 *            from there in the same registers
 *   WIDE_TILE  on wgmma, one step of a loop that does other things as well: a tile of 128 rows · the pages of a slice
 *            of a tensor. The tile is in a buffer, as atoms, or is computed from FRAGMENTs in registers. EACH, REDUCE
 *            (QUAD: the four lanes that have a row) and STORE around it stay in the FRAGMENTs, too
 *   SYNC     all consumers meet; what any wrote to buffers and tensors before is seen by all after
 *   ASSIGN   a SCALAR
 *   FOR, IF  on scalars that are the same in every thread
 * Loader statements: FOR, IF, and
 *   PAGES    the pages that the SKINNY of the same number takes
 *   WIDE_PAGES  those of a WIDE
 *
 * Lowering an op (role.c) goes in steps:
 *   1. REDUCE and DOT nodes become statements with variables of their own, innermost first (role_flatten.c).
 *   2. A stream loop that is nothing but sums of products of one left operand of 64 or 128 rows, which lies in memory
 * in the products' type, with weights of that type or of one block format becomes one WIDE (role_wide.c). Then, of
 * those that are left: a stream loop that is nothing but sums of products with streamed weights becomes one panel of
 * all its columns and one SKINNY for each product: the panel is written once, and no warp waits for another while pages
 * flow (role_dot.c). A panel too long for its room is written in turns.
 *   3. Every other product gets its strategy (role_dot.c). SKINNY needs: at most 16 rows; a 16-bit product type; the
 *      right operand the transpose of a slice of a weight that lies in ATOMS or BANDS, that starts at a multiple of 8
 *      rows and at a page's column, at places that a loader can know. All else is DOT.
 *   4. Every variable gets its place, every tile its threads (role_place.c).
 *   5. Buffers get their bytes by lifetime, then SYNCs are placed where a statement touches bytes that another thread
 *      may have touched since the last one, loops included (role_sync.c).
 *
 * Order of sums: within a warp by k, over lanes by a fixed tree, over warps by their number. It depends on nothing but
 * the op's constants. */
#ifndef TILE_ROLE_H
#define TILE_ROLE_H

#include "tile/tile.h"

enum {
    ROLE_WARPS = 8,
    ROLE_THREADS = 32 * ROLE_WARPS,
    ROLE_PAGE = 16384,       /* bytes of a page */
    ROLE_LONG_PAGE = 20736,  /* of one with weights in blocks, at most: such a unit's pages are as long as it needs */
    ROLE_SHARED = 152 << 10, /* bytes of buffers that an instruction may have: what is left of an SM are pages, three at
                                least, as long as they get (role_page_bytes) */
    ROLE_LEAST_PAGES = 3,
    ROLE_PAGE_GRAIN = 1024,        /* of pages that are atoms */
    ROLE_KERNEL_SHARED = 12 << 10, /* at most: what the kernel has for itself, traced too, and what alignment takes */
    ROLE_SKINNY_ROWS = 16
};

/* ---- weights in device memory ---- */

/* ROWS:  as on the host: row-major, packed, strides in the operand table.
 * ATOMS: a 2-d weight [N, K] of a 16-bit dense type, re-laid once: atoms of 8 rows x 64 columns (128 bytes a row), the
 *        16-byte chunks of row r at places chunk ^ (r % 8); the atoms of an 8-row block one after another along K,
 *        block after block. N and K are padded with zeros to multiples of 8 and 64. Element (n, k) lies at byte
 *            ((n / 8) * ceil(K / 64) + k / 64) * 1024 + (n % 8) * 128 + ((k % 64 / 8) ^ (n % 8)) * 16 + (k % 8) * 2
 * BANDS: a 2-d weight of a block format: the blocks of 8 rows x `band` columns together, row after row, band after band
 *        along K, 8-row block after 8-row block; the rows of a band padded so that the 8 of them lie in shared memory
 *        without bank conflicts. role_band says how many columns a band has, role_band_row how many bytes such a row,
 *        role_is_paired whether blocks are taken apart, two at a time.
 * MAPPED: ROWS of a 16-bit type whose address and strides are multiples of 16 bytes, on a chip that copies pieces of
 *        them as atoms: what a WIDE wants of its left operand. Of an op's operands; a tensor as such lies in ROWS.
 */
typedef enum role_layout { ROLE_ROWS, ROLE_ATOMS, ROLE_BANDS, ROLE_MAPPED } role_layout;

/* Columns in a band of a format, for a row of `columns` elements: bands of a row are as equal as whole blocks and whole
 * slices of all warps allow. */
int64_t role_band(const tile_format *f, int64_t columns);
/* Bytes from one row of a band of so many columns to the next: an odd multiple of 16. So the words at one place of 8
 * rows lie 4 banks (or 12, 20, 28) apart, with room for the 4 neighbours that 4 lanes read of each row. */
int64_t role_band_row(const tile_format *f, int64_t columns);
/* Two blocks of such a row lie together, field by field (role_pair.c). */
bool role_is_paired(const tile_format *f, int64_t columns);
/* The format of what lies there: the format, or the one of its pairs. */
const tile_format *role_banded(arena *memory, const tile_format *f, int64_t columns);
void role_lay_pairs(const tile_format *f, const uint8_t *from, int64_t pairs, uint8_t *to);
/* Bytes of a weight [rows, columns] in a layout, padding included. */
int64_t role_layout_bytes(role_layout layout, const tile_format *f, int64_t rows, int64_t columns);
/* The layout that an op would like for a tensor (by ordinal): ATOMS or BANDS for a weight that some dot could stream,
 * MAPPED for the left operand of a WIDE, else ROWS. */
role_layout role_wish(const tile_op *op, int tensor);

/* ---- the chip ---- */

/* What of the chip the lowering has to know. */
typedef struct role_chip {
    bool wgmma;     /* WIDE, WIDE_TILE, and level 2's wgmma: Hopper alone */
    bool copies;    /* copies that count bytes, tensor maps: from Hopper on. Level 2 stands on them */
    int64_t shared; /* bytes of buffers that an instruction may have; at most ROLE_SHARED */
} role_chip;
/* Of compute capability `major`.*, where a CTA can have so many bytes of shared memory: buffers may have what the
 * kernel and the fewest pages leave of it. */
role_chip role_chip_of(int major, int64_t shared_bytes);
/* The op, with its tensors in the layouts that it wishes for, can be lowered for the chip. */
bool role_fits(const tile_op *op, const role_chip *chip);

/* ---- the lowered op ---- */

typedef enum role_place {
    ROLE_SCALAR,
    ROLE_FUSED,
    ROLE_BUFFER,
    ROLE_PARTS,
    ROLE_FRAGMENT,
    ROLE_REGISTER,
    ROLE_STAGE
} role_place;

typedef struct role_variable {
    role_place place;
    const tile_node *value; /* the only value it is ever given, by EACH or ASSIGN; NULL: it has others, or none */
    int parts;              /* PARTS: the buffer, whose rows are the warps */
    tile_operator op;       /* PARTS: how the parts make one */
    int64_t stride;         /* BUFFER: elements from one row (along the last dimension) to the next */
    int64_t bytes, offset;  /* BUFFER: where it lies */
    int first, last;        /* BUFFER: the numbers of the statements between which it is alive; 0, 0: it is not used */
    bool panel;
    bool atoms; /* a BUFFER of 16-bit elements that lies as atoms do: 64 columns of all rows, then the next 64 */
    const struct layout *layout; /* REGISTER */
    int shared;                  /* STAGE: of op.level2 */
    bool wgmma;                  /* REGISTER: sums of wgmma */
    const char *why;             /* the place was chosen because */
} role_variable;

/* How the elements of a tile are spread over the threads: `lanes` threads (a power of two) a row, `vector` neighbours
 * each time. Thread t has the rows t / lanes, + ROLE_THREADS / lanes, ... and in a row the columns t % lanes * vector,
 * + lanes * vector, ... All dimensions but the last together are the rows. Or, `fragment`: as a FRAGMENT of so many
 * rows and columns lies. */
typedef struct role_spread {
    int64_t rows, columns;
    int vector, lanes;
    bool fragment;
    const struct layout
        *registers; /* level 2: the elements of a tile in this layout; `vector` of its neighbours at once */
    bool everyone;  /* level 2: threads that hold the same, too, where it is not only computed */
} role_spread;

typedef enum role_kind {
    ROLE_EACH,
    ROLE_STORE,
    ROLE_REDUCE,
    ROLE_DOT,
    ROLE_SKINNY,
    ROLE_WIDE,
    ROLE_WIDE_TILE,
    ROLE_SYNC,
    ROLE_ASSIGN,
    ROLE_FOR,
    ROLE_IF,
    ROLE_PAGES,
    ROLE_WIDE_PAGES,
    ROLE_WIDE_TILE_PAGES,
    ROLE_ACTION
} role_kind;
typedef enum role_reduce_mode { ROLE_SERIAL, ROLE_WARP, ROLE_ALL, ROLE_QUAD } role_reduce_mode;
typedef enum role_dot_mode {
    ROLE_ALONG_K,
    ROLE_SPLIT_K,
    ROLE_OUTPUTS,
    ROLE_TENSOR_ALONG_K,
    ROLE_TENSOR_SPLIT_K
} role_dot_mode;

/* The pages of a slice of a weight, in the order of their use: for each of the `blocks` 8-row blocks from `row` on, as
 * far as the weight has them, for each page of columns from `column` on, as far as the slice and the weight have them,
 * all bytes of the block's columns there. Where a block's columns are one short page, a page has several blocks. */
typedef struct role_pages {
    int number; /* joins PAGES and SKINNY; from 1 */
    int param;
    const tile_node *row;    /* the first row: a multiple of 8, not negative */
    const tile_node *column; /* the first column: a multiple of page_columns (ATOMS: of 64), not negative */
    int64_t blocks;
    int64_t columns; /* of the slice; with ATOMS a multiple of 64 */
    int64_t page_columns;
    int64_t page_blocks;   /* in a page of ROLE_LONG_PAGE bytes; role_page_blocks says how many of shorter ones */
    int64_t row_columns;   /* of the weight, with its padding */
    const tile_node *rows; /* of the weight: CONST or EXTENT */
} role_pages;

/* Products of one left operand, in steps of ROLE_WIDE_K columns: of all columns, or of a part of them from `column` on,
 * which is shorter where the tensors end. A step's pages: the left operand's rows, then, product by product, each
 * weight's rows, ROLE_WIDE_PAGE a page. */
enum { ROLE_WIDE_K = 64, ROLE_WIDE_PAGE = 128, ROLE_WIDE_PRODUCTS = 2, ROLE_WIDE_MOST = 3, ROLE_WIDE_SUMS = 128 };

/* Weights of a block format are decoded a chunk at a time: as many columns as whole blocks and whole steps have. While
 * the steps of one chunk are multiplied, the next one is decoded, its rows spread over these steps. Rows of all
 * products count together. Such a page has pieces of ROLE_WIDE_PIECE rows of a chunk, each row with all of its blocks.
 * A copy begins at a multiple of 16 bytes (for anything else the chip says: illegal instruction), so up to 15 bytes of
 * the chunk before may come first. The pages: all of the first chunk; then for each step the left operand's rows, and
 * the next chunk's rows of its turn. */
enum { ROLE_WIDE_PIECE = 64, ROLE_WIDE_BOX = 256 /* bytes of a row that a copy can take */ };
typedef struct role_decoded {
    const tile_format *format; /* NULL: the weights lie in ATOMS, in the products' type */
    int tile;                  /* the buffer: [rows][chunks of columns], as atoms */
    int buffers;               /* chunks that it holds: one that is multiplied, one that is decoded; with a third one
                                  nobody waits for the products of the step before */
    int64_t columns;           /* of a chunk */
    int64_t row_bytes;         /* from one row to the next in a page */
    int64_t rows;              /* of all products */
    int64_t step_rows;         /* that are decoded in a step, while there are any */
    int64_t page_rows;         /* a divisor of step_rows */
} role_decoded;
/* Columns of a chunk of a format, and bytes of a row of it in a page, wherever the chunk begins: an odd multiple of 16,
 * as a band's row (bank conflicts). 0: its weights are not decoded for a WIDE. */
int64_t role_decoded_columns(const tile_format *f);
int64_t role_decoded_row(const tile_format *f);

typedef struct role_wide {
    int64_t rows, columns; /* of the tile */
    int64_t steps;
    const tile_node *column; /* the first column: a multiple of a step's and of a chunk's, less than the tensors'
                                extent, not negative. NULL: 0 */
    int64_t last_step;       /* the tensors end there */
    int left;                /* the parameter */
    const tile_node *row;    /* its first row */
    int count;
    struct role_wide_product {
        int to;               /* a FRAGMENT */
        int param;            /* the weight */
        const tile_node *row; /* its first row: a multiple of 8, not negative */
    } product[ROLE_WIDE_PRODUCTS];
    role_decoded decoded;
} role_wide;

/* A slice of a MAPPED tensor of rank 2 or 3, of 64 or 128 rows (its first RANGE) and all of its columns: a page for
 * each 64 of them. Rows at the limit and beyond count as zeros. */
typedef struct role_wide_slice {
    int param;
    const tile_access *access;
    int64_t rows, columns;
    bool transposed; /* tile · sliceᵀ, [128, rows], with the tile in `from`; else tile · slice, [128, columns], with the
                        tile `left` in registers */
} role_wide_slice;

typedef struct role_statement {
    role_kind kind;
    struct role_statement *next;
    int number; /* in program order, from 1 */
    int line;   /* of the tile program's text */
    int to; /* EACH, REDUCE, DOT, ASSIGN: the variable that is written; where warps leave parts, the buffer of parts */
    int from;         /* DOT, SKINNY: the left operand's buffer */
    bool adds;        /* STORE: += */
    bool declares;    /* EACH, ASSIGN: the variable's first value */
    tile_operator op; /* REDUCE: SUM, REDUCE_MAX, REDUCE_MIN, ARGMAX */
    int axis;         /* REDUCE */
    role_reduce_mode reduce;
    role_dot_mode dot;
    const tile_node
        *value;            /* EACH, STORE, ASSIGN; REDUCE: what is reduced; DOT: the right operand; IF: the condition */
    const tile_node *left; /* DOT, SKINNY: the left operand, until it has a buffer */
    bool transposed;       /* DOT: value is [n, k], else [k, n] */
    const tile_access *access;          /* STORE */
    tile_shape shape;                   /* STORE: of the slice; REDUCE: of the result; DOT, SKINNY: [m, n] */
    role_spread spread;                 /* EACH, STORE; of REDUCE and DOT only the vector */
    role_pages pages;                   /* PAGES, SKINNY */
    role_wide wide;                     /* WIDE, WIDE_PAGES */
    role_wide_slice slice;              /* WIDE_TILE, WIDE_TILE_PAGES */
    const tile_format *product;         /* SKINNY, WIDE: bf16 or f16 */
    const struct level2_action *action; /* ACTION: explicit.h */
    const tile_node *whole; /* EACH of where(c, a, b), or NULL: a scalar; when it is true c holds for all elements */
    int index;              /* FOR: the loop */
    const tile_node *begin, *end;
    struct role_statement *body, *otherwise;
    const char *why;                   /* DOT, SKINNY, WIDE: the strategy was chosen because */
    const struct role_access *touched; /* role_accesses, from role_share on */
    int touched_count;
} role_statement;

typedef struct role_op {
    const tile_op *source;
    tile_op op; /* the source with the lowering's variables; its body is still the source's */
    role_variable *variables;
    const tile_statement **loops;    /* by loop: its statement in the source */
    bool stored[TILE_PARAMS];        /* by parameter: some statement writes it */
    role_layout layout[TILE_PARAMS]; /* by tensor ordinal; MAPPED is ROWS here, and: */
    bool mapped[TILE_PARAMS];
    role_statement *loader, *consumer;
    role_statement *storer; /* level 2 */
    int64_t shared_bytes;   /* of buffers; a multiple of 128 */
    int page_count;         /* PAGES and WIDE_PAGES statements */
    bool wide;              /* there is a WIDE */
    bool missed;            /* there would be one, had the chip wgmma */
    const char *not_wide;   /* why a product of so many rows is none; NULL: it is one, or a matter of course */
    int borrowed;           /* level 2: pages that an instruction has for its own, from its beginning to its end */
    int64_t *shared_offset; /* level 2, by shared tensor: its first page, or its place in the shared memory */
    bool loader_reads_live; /* the pages depend on live values: these must not change while a loader may be ahead */
} role_op;

/* Lowers an op whose tensors lie as `layout` (by ordinal) says. MT_E_UNSUPPORTED names the construct that has no code.
 * The result lives in `a`; `source` must outlive it. For sm_90a; _for: for that chip. */
mt_status role_lower(arena *a, role_op **out, const tile_op *source, const role_layout *layout, mt_error *error);
mt_status role_lower_for(arena *a, role_op **out, const tile_op *source, const role_layout *layout,
                         const role_chip *chip, mt_error *error);

/* The pages that an instruction of an op of level 2 holds at once; 0 for level 1. */
int64_t role_borrowed_pages(const tile_op *op);

/* Bytes of 8 rows in a page. */
int64_t role_page_block(const role_op *r, const role_pages *p);
/* 8-row blocks in a page of so many bytes, which at least one fits in. */
int64_t role_page_blocks(const role_op *r, const role_pages *p, int64_t page_bytes);
/* The bytes that a unit's pages have, for all ops in it; `count` of them. At least ROLE_PAGE. Wide products and level 2
 * want pages that begin at multiples of 1024, and as many as there can be: beside them only what does not fit otherwise
 * makes pages longer. *least: pages that the unit cannot do without. */
int64_t role_page_bytes(role_op *const *ops, size_t count, int64_t *least);

/* For people: variables and their places, the budget, the statements of each role. */
void role_print(text *out, const role_op *r);

/* Of a STORE: the shape without the dimensions whose indices come from data (their extents become 1); false when there
 * are none. */
bool role_scattered(const role_statement *s, tile_shape *shape);

/* What a statement itself (not its body) does to buffers and tensors. */
typedef struct role_access {
    int variable; /* a buffer, or -1 */
    int param;    /* a tensor that the op also writes, or -1 */
    bool writes;
    bool own; /* every thread touches only the elements that the statement's spread gives it */
} role_access;
enum { ROLE_ACCESSES = 64 };
/* Fills at most ROLE_ACCESSES of them; returns their number, or -1 when there are more. */
int role_accesses(const role_op *r, const role_statement *s, role_access *out);

/* Whether an op has wide products, with its tensors in the layouts that it wishes for, and what they need. */
typedef struct role_wide_needs {
    bool mapped[TILE_PARAMS], weight[TILE_PARAMS]; /* by parameter: operands that are MAPPED; weights, re-laid */
    int64_t decoded;                               /* bytes of weights that an instruction decodes */
} role_wide_needs;
bool role_has_wide(const tile_op *op, role_wide_needs *out);
/* Why no product of so many rows is wide, with the layouts that the op wishes for; NULL as for role_op.not_wide. */
const char *role_why_not_wide(arena *a, const tile_op *op);

/* Operands of a node: a, b, c, its list, then the scalars and tiles of its access; some may be NULL. */
int role_operand_count(const tile_node *n);
const tile_node *role_operand(const tile_node *n, int i);

/* ---- facts about scalars ---- */

/* Only what a loader may know: grid, loops, extents, args, live values. */
bool role_is_early(const role_op *r, const tile_node *n);

/* The range of an integer scalar, if it is known. */
bool role_range(const role_op *r, const tile_node *n, int64_t *low, int64_t *high);
/* The largest number that surely divides an integer scalar; 0 for the constant 0. */
int64_t role_divisor(const role_op *r, const tile_node *n);

#endif
