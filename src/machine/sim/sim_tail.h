/* The end of a simulated unit: what the simulator looks up. */

static MT_BARE void mt_sim_set(const sim_calls *calls) { mt_calls = calls; }
static MT_BARE void mt_sim_kernel(const void *launch) { monotile(*(const cuda_run *)launch); }
static const sim_barriers mt_sim_barriers[] = {
#define MT_NAMED(name)                                                                                                 \
    { #name, (uint32_t)offsetof(mt_cta, name), (uint32_t)(sizeof(((mt_cta *)0)->name) / 8) }
    MT_NAMED(slot_full), MT_NAMED(slot_empty), MT_NAMED(page_full), MT_NAMED(page_empty), {0, 0, 0}};
extern "C" __attribute__((visibility("default"))) const sim_unit mt_sim_unit = {mt_sim_set,
                                                                                mt_sim_kernel,
                                                                                (uint32_t)sizeof(mt_cta),
                                                                                mt_sim_barriers,
                                                                                (uint32_t)offsetof(mt_cta, slot),
                                                                                CUDA_SLOTS,
                                                                                (uint32_t)sizeof(mt_slot),
                                                                                (uint32_t)offsetof(mt_slot, number),
                                                                                (uint32_t)offsetof(mt_slot, barrier)};
