/* The instruction: limits, and the table of its fields that everyone reads it through: scheduler, checker,
 * disassembler, machines. Device code has this file pasted in front of it, so it stands alone and needs only the
 * fixed-width integer types. */
#ifndef PROGRAM_INSTRUCTION_H
#define PROGRAM_INSTRUCTION_H

enum {
    PROGRAM_RANK = 5,
    PROGRAM_AXES = 5,
    PROGRAM_TENSORS = 16, /* operands of an instruction */
    PROGRAM_ARGS = 4,
    PROGRAM_LIVES = 4,
    PROGRAM_WAITS = 6,     /* barriers an instruction waits for; more are joined */
    PROGRAM_ARRIVES = 6,   /* barriers it arrives at; more are joined */
    PROGRAM_JOIN = 0xffff, /* opcode of an instruction that only waits and arrives */
    PROGRAM_NONE = -1
};

/* The instruction, field by field: X(C type, name, count, what it is). Everyone who reads an instruction reads it
 * through this table's struct: scheduler, checker, disassembler, machines. */
#define PROGRAM_INSTRUCTION(X)                                                                                         \
    X(uint16_t, opcode, 1, "index into the op table, or 0xffff for a join")                                            \
    X(uint8_t, wait_count, 1, "barriers waited for")                                                                   \
    X(uint8_t, arrive_count, 1, "barriers arrived at")                                                                 \
    X(uint32_t, node, 1, "index into the node table; for a join, the node that waits on it")                           \
    X(int32_t, index, PROGRAM_AXES, "grid point; unused axes are 0")                                                   \
    X(uint32_t, tensor, PROGRAM_TENSORS, "by tensor ordinal: index into the operand table; unused ones are 0")         \
    X(int32_t, arg, PROGRAM_ARGS, "by arg ordinal: an i32, or the bits of an f32")                                     \
    X(uint16_t, live, PROGRAM_LIVES, "by live ordinal: index into the live table")                                     \
    X(uint32_t, wait, PROGRAM_WAITS, "barriers to wait for")                                                           \
    X(uint32_t, target, PROGRAM_WAITS, "arrivals to wait for at each, per run: the threshold is target x epoch")       \
    X(uint32_t, arrive, PROGRAM_ARRIVES, "barriers to arrive at when done")

typedef struct program_instruction {
#define X(type, name, count, what) type name PROGRAM_FIELD_##count;
#define PROGRAM_FIELD_1
#define PROGRAM_FIELD_PROGRAM_AXES    [PROGRAM_AXES]
#define PROGRAM_FIELD_PROGRAM_TENSORS [PROGRAM_TENSORS]
#define PROGRAM_FIELD_PROGRAM_ARGS    [PROGRAM_ARGS]
#define PROGRAM_FIELD_PROGRAM_LIVES   [PROGRAM_LIVES]
#define PROGRAM_FIELD_PROGRAM_WAITS   [PROGRAM_WAITS]
#define PROGRAM_FIELD_PROGRAM_ARRIVES [PROGRAM_ARRIVES]
    PROGRAM_INSTRUCTION(X)
#undef X
} program_instruction;
#endif
