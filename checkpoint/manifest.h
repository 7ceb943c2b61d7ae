/* The list of a resident cache's files, kept in a sealed memfd so that the manager's own memory stays small.
 * Lines of JSON (RFC 8259): a header object {"iloaderManifest":1,"files":N,"bytes":N,"descriptors":N}, then
 * one object per file with the fields of io.iloader.Manager's type File, in that order and without blanks:
 * the one way of writing it that the reader takes, which makes it quick and leaves nothing to guess. What a
 * worker wrote is its claim: reading checks every field and bound. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/json.h"
#include "checkpoint/selection.h"

typedef struct ManifestFile {
        char *path; /* owned; relative and normal */
        FileIdentity identity;
        uint64_t memory_device, memory_inode;
        uint64_t offset;     /* in the pack; 0 otherwise */
        uint32_t descriptor; /* of the worker, WORKER_FIRST_DESCRIPTOR and up */
        bool packed;
} ManifestFile;
void manifest_file_done(ManifestFile *f);
#define _cleanup_manifest_file_ _cleanup_(manifest_file_done)

/* Writing: into an unsealed memfd. */
typedef struct ManifestWriter ManifestWriter;
int manifest_writer_new(int fd, uint64_t n_files, uint64_t bytes, uint64_t n_descriptors,
                        ManifestWriter **ret);
int manifest_writer_add(ManifestWriter *w, const ManifestFile *file);
/* Flushes; the number of files added must be the number promised (-EINVAL). */
int manifest_writer_finish(ManifestWriter *w);
ManifestWriter *manifest_writer_free(ManifestWriter *w);
DEFINE_CLEANUP(ManifestWriter *, manifest_writer_free)

/* Reading: from the start of a sealed memfd, with an offset of its own (the descriptor's is neither used nor
 * moved). */
typedef struct ManifestReader ManifestReader;
int manifest_reader_new(int fd, ManifestReader **ret); /* borrows fd */
uint64_t manifest_reader_files(const ManifestReader *r);
uint64_t manifest_reader_bytes(const ManifestReader *r);
uint64_t manifest_reader_descriptors(const ManifestReader *r);
/* 1 and a file; 0 at the end; -EBADMSG where a line or the order (strictly ascending paths, and ascending
 * descriptors of the files that aren't packed, which have one each; all packed ones share one) is wrong, or,
 * at the end, where the sums aren't those of the header. */
int manifest_reader_next(ManifestReader *r, ManifestFile *ret);
ManifestReader *manifest_reader_free(ManifestReader *r);
DEFINE_CLEANUP(ManifestReader *, manifest_reader_free)

/* To and from the interface's type File. */
int manifest_file_to_json(const ManifestFile *f, struct json_object **ret);
int manifest_file_from_json(struct json_object *o, ManifestFile *ret);
