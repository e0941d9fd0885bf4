/* The slow paths of lib_vec and the hash map of hash-consing. Both live in an arena: growth copies and does not free the old
 * storage, which costs at most the final size again. */
#include "lib/lib.h"

void *lib_vec_grow(lib_arena *arena, void *data, uint32_t count, uint32_t *capacity, uint32_t extra, size_t size) {
    uint64_t need = (uint64_t)count + extra;
    uint64_t room = *capacity < 4 ? 8 : 2 * (uint64_t)*capacity;
    if (room < need) room = need;
    if (room > UINT32_MAX) room = UINT32_MAX;
    if (need > room)
        lib_raise(arena->scope, DLC_OUT_OF_MEMORY, "out of memory: more than 2^32 - 1 elements in one array");
    size_t bytes;
    if (!lib_size_multiply((size_t)room, size, &bytes)) bytes = SIZE_MAX; /* refused */
    void *grown = lib_arena_extend(arena, data, count * size, *capacity * size, bytes);
    *capacity = (uint32_t)room;
    return grown;
}

/* ---- map ----------------------------------------------------------------------------------------
 *
 * Linear probing, at most 3/4 full, so that every probe ends at an empty slot (hash 0). */

static uint64_t stored_hash(uint64_t hash) {
    return hash ? hash : 1;
}

/* The slot at which the search for a hash begins. Multiplying first spreads hashes with weak low bits (addresses, small integers). */
static uint32_t home(const lib_map *map, uint64_t hash) {
    return (uint32_t)(hash * 0x9e3779b97f4a7c15u >> 32) & (map->capacity - 1);
}

static uint32_t probe(const lib_map *map, uint64_t hash, uint32_t at) {
    for (; map->slots[at].hash; at = (at + 1) & (map->capacity - 1))
        if (map->slots[at].hash == hash) return at;
    return LIB_MAP_END;
}

uint32_t lib_map_first(const lib_map *map, uint64_t hash) {
    if (!map->capacity) return LIB_MAP_END;
    hash = stored_hash(hash);
    return probe(map, hash, home(map, hash));
}

uint32_t lib_map_next(const lib_map *map, uint64_t hash, uint32_t at) {
    return probe(map, stored_hash(hash), (at + 1) & (map->capacity - 1));
}

static void place(lib_map *map, uint64_t hash, uint32_t value) {
    uint32_t at = home(map, hash);
    while (map->slots[at].hash) at = (at + 1) & (map->capacity - 1);
    map->slots[at] = (lib_map_slot){hash, value};
}

static void grow(lib_arena *arena, lib_map *map) {
    if (map->capacity > UINT32_MAX / 4)
        lib_raise(arena->scope, DLC_OUT_OF_MEMORY, "out of memory: more than 2^30 entries in one map");
    lib_map grown = {NULL, map->capacity ? 2 * map->capacity : 16, map->count};
    grown.slots = LIB_NEW_ARRAY(arena, lib_map_slot, grown.capacity);
    for (uint32_t i = 0; i < map->capacity; i++)
        if (map->slots[i].hash) place(&grown, map->slots[i].hash, map->slots[i].value);
    *map = grown;
}

void lib_map_insert(lib_arena *arena, lib_map *map, uint64_t hash, uint32_t value) {
    if (map->count >= map->capacity / 4 * 3) grow(arena, map);
    place(map, stored_hash(hash), value);
    map->count++;
}
