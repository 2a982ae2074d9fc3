/* Monotile: a neural network as one program of tile instructions, run by one persistent kernel.
 *
 *   model file, torch graph, C API ─► graph ─► schedule ─► program ─► machine
 *
 * error.h    status codes          tile.h     tile programs            program.h  compile, save, inspect
 * graph.h    build a graph         machine.h  run a program            model.h    model files
 * text.h     tokenizer, template, sampler                              llm.h      generate text */
#ifndef MONOTILE_MONOTILE_H
#define MONOTILE_MONOTILE_H

#include "monotile/error.h"
#include "monotile/graph.h"
#include "monotile/llm.h"
#include "monotile/machine.h"
#include "monotile/model.h"
#include "monotile/program.h"
#include "monotile/text.h"
#include "monotile/tile.h"

#endif
