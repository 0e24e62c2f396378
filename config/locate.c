/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds the line of a key, for error texts, in a configuration that libcyaml has accepted. libcyaml
 * keeps no positions, so libyaml, which it is built on, reads the text once more.
 */
#include "config/schema.h"

#include <stdlib.h>
#include <string.h>

#include <yaml.h>

static yaml_node_t *mapping_get(yaml_document_t *doc, yaml_node_t *node, const char *key,
                                size_t len)
{
    if (node->type != YAML_MAPPING_NODE)
        return NULL;
    yaml_node_pair_t *pair = node->data.mapping.pairs.start;
    for (; pair < node->data.mapping.pairs.top; pair++) {
        yaml_node_t *k = yaml_document_get_node(doc, pair->key);
        if (k && k->type == YAML_SCALAR_NODE && k->data.scalar.length == len &&
            memcmp(k->data.scalar.value, key, len) == 0)
            return yaml_document_get_node(doc, pair->value);
    }
    return NULL;
}

static yaml_node_t *sequence_get(yaml_document_t *doc, yaml_node_t *node, size_t index)
{
    if (node->type != YAML_SEQUENCE_NODE)
        return NULL;
    yaml_node_item_t *item = node->data.sequence.items.start;
    if (index >= (size_t)(node->data.sequence.items.top - item))
        return NULL;
    return yaml_document_get_node(doc, item[index]);
}

/* Follows a path such as "models[2].path" as far as it exists: a missing key is reported at its
 * section. */
static size_t find(yaml_document_t *doc, const char *key)
{
    yaml_node_t *node = yaml_document_get_root_node(doc);
    yaml_node_t *last = node;
    while (node && *key) {
        if (*key == '[') {
            char *end;
            node = sequence_get(doc, node, strtoul(key + 1, &end, 10));
            key = *end == ']' ? end + 1 : end;
        } else {
            size_t len = strcspn(key, ".[");
            node = mapping_get(doc, node, key, len);
            key += len;
        }
        key += *key == '.';
        last = node ? node : last;
    }
    return last ? last->start_mark.line + 1 : 0;
}

size_t schema_line(const void *data, size_t size, const char *key)
{
    yaml_parser_t parser;
    yaml_document_t doc;
    size_t line = 0;
    if (!yaml_parser_initialize(&parser))
        return 0;
    yaml_parser_set_input_string(&parser, data, size);
    if (!yaml_parser_load(&parser, &doc)) {
        line = parser.problem ? parser.problem_mark.line + 1 : 0;
    } else {
        if (key)
            line = find(&doc, key);
        yaml_document_delete(&doc);
    }
    yaml_parser_delete(&parser);
    return line;
}
