/* What the lowering asks of the chip, and what it says when the chip has not got it. */
#include "tile/explicit.h"
#include "tile/role_internal.h"

const role_chip role_hopper = {.wgmma = true, .copies = true, .shared = ROLE_SHARED};

/* The bytes of a unit's fewest pages: with wide products three of any length; else two, which are less than three short
 * ones. (A unit that has level 2 without wgmma and long pages may not find room. It is refused when it is loaded.) */
static int64_t fewest_pages(const role_chip *chip) {
    return ROLE_LEAST_PAGES * (chip->wgmma ? (int64_t)align_up(ROLE_LONG_PAGE, ROLE_PAGE_GRAIN) : ROLE_PAGE);
}

role_chip role_chip_of(int major, int64_t shared_bytes) {
    role_chip chip = {.wgmma = major == 9, .copies = major >= 9};
    const int64_t left = shared_bytes - fewest_pages(&chip) - ROLE_KERNEL_SHARED;
    chip.shared = min_i64(max_i64(left, 0), ROLE_SHARED) / 128 * 128;
    return chip;
}

/* What an op of level 2 says itself, the chip must have. */
void role_check_level2(role_lowering *l, const tile_statement *s) {
    if (s && !l->chip.copies)
        role_unsupported(l, s->line, "level 2 on this chip, which has no copies that count their bytes at a barrier");
    for (; s && !l->status; s = s->next) {
        if (s->kind == TILE_ACTION && s->action->kind == LEVEL2_WGMMA && !l->chip.wgmma)
            role_unsupported(l, s->line, "wgmma on this chip, only for Hopper (sm_90a)");
        if (s->kind == TILE_ACTION && s->action->kind == LEVEL2_ROLE && !l->chip.wgmma &&
            l->r->source->level2->budget[s->action->role])
            role_unsupported(l, s->line, "register budgets on this chip, only for Hopper (sm_90a)");
        role_check_level2(l, s->body);
        role_check_level2(l, s->otherwise);
    }
}

/* Products that are wide but for the chip say so. */
void role_note_missed(role_lowering *l, role_statement *s) {
    for (; s; s = s->next) {
        if (s->kind == ROLE_SKINNY || s->kind == ROLE_DOT)
            s->why = arena_printf(l->memory, "%s%sno wide product: this chip has no wgmma", s->why ? s->why : "",
                                  s->why ? "; " : "");
        role_note_missed(l, s->body);
        role_note_missed(l, s->otherwise);
    }
}
