/* Writing and reading the list of files. A checkpoint may have many thousands, and each of manager, publisher
 * and prober reads the list, so lines are made and parsed directly, without building objects. */
#include "checkpoint/manifest.h"

#include <inttypes.h>
#include <limits.h>
#include <string.h>

#include "base/fd.h"
#include "base/path.h"
#include "base/text.h"

#define MANIFEST_BUFFER_SIZE KIB(64)
/* A path's every byte as \u00XX, its base64, and the numbers, which are at most 20 digits each. */
#define MANIFEST_LINE_MAX (PATH_MAX * 6 + PATH_MAX * 2 + 1024)
/* 0 to 2 are never a resident file. */
#define MANIFEST_DESCRIPTOR_MIN 3

_Static_assert(MANIFEST_LINE_MAX < MANIFEST_BUFFER_SIZE, "a line must fit into the buffer");

void manifest_file_done(ManifestFile *f)
{
        free(f->path);
        *f = (ManifestFile){};
}

/* What holds for every file, whatever text it came from. */
static bool manifest_file_is_valid(const ManifestFile *f)
{
        return path_is_normal_relative(f->path) && f->identity.size <= INT64_MAX && f->offset <= INT64_MAX &&
               f->identity.size + f->offset <= INT64_MAX && (f->packed || f->offset == 0) &&
               f->descriptor >= MANIFEST_DESCRIPTOR_MIN && f->descriptor <= INT32_MAX;
}

struct ManifestWriter {
        int fd; /* not owned */
        uint64_t position;
        uint64_t n_files, n_promised;
        uint64_t bytes, bytes_promised;
        size_t n; /* used of buffer */
        char buffer[MANIFEST_BUFFER_SIZE];
};

static int writer_flush(ManifestWriter *w)
{
        int r;

        r = fd_pwrite_full(w->fd, w->buffer, w->n, w->position);
        if (r < 0)
                return r;
        w->position += w->n;
        w->n = 0;
        return 0;
}

/* Space for a line is there: writer_begin() saw to it. */
static int writer_begin(ManifestWriter *w)
{
        return sizeof(w->buffer) - w->n < MANIFEST_LINE_MAX ? writer_flush(w) : 0;
}

static void writer_put(ManifestWriter *w, const char *s)
{
        size_t n = strlen(s);

        memcpy(w->buffer + w->n, s, n);
        w->n += n;
}

static void writer_put_u64(ManifestWriter *w, const char *before, uint64_t v)
{
        char digits[20];
        size_t n = sizeof(digits);

        writer_put(w, before);
        do
                digits[--n] = (char) ('0' + v % 10);
        while ((v /= 10) > 0);
        memcpy(w->buffer + w->n, digits + n, sizeof(digits) - n);
        w->n += sizeof(digits) - n;
}

static void writer_put_i64(ManifestWriter *w, const char *before, int64_t v)
{
        if (v >= 0) {
                writer_put_u64(w, before, (uint64_t) v);
                return;
        }
        writer_put(w, before);
        writer_put_u64(w, "-", -(uint64_t) v);
}

static void writer_put_string(ManifestWriter *w, const char *s)
{
        static const char digits[] = "0123456789abcdef";

        for (; *s; s++) {
                unsigned char c = (unsigned char) *s;

                if (c == '"' || c == '\\')
                        w->buffer[w->n++] = '\\';
                if (c >= 0x20)
                        w->buffer[w->n++] = (char) c;
                else {
                        writer_put(w, "\\u00");
                        w->buffer[w->n++] = digits[c >> 4];
                        w->buffer[w->n++] = digits[c & 0xf];
                }
        }
}

int manifest_writer_new(int fd, uint64_t n_files, uint64_t bytes, uint64_t n_descriptors,
                        ManifestWriter **ret)
{
        ManifestWriter *w;

        w = malloc(sizeof(*w));
        if (!w)
                return -ENOMEM;
        w->fd = fd;
        w->position = 0;
        w->n_files = 0;
        w->n_promised = n_files;
        w->bytes = 0;
        w->bytes_promised = bytes;
        w->n = 0;
        writer_put_u64(w, "{\"iloaderManifest\":1,\"files\":", n_files);
        writer_put_u64(w, ",\"bytes\":", bytes);
        writer_put_u64(w, ",\"descriptors\":", n_descriptors);
        writer_put(w, "}\n");
        *ret = w;
        return 0;
}

static int writer_put_path(ManifestWriter *w, const char *path)
{
        _cleanup_free_ char *text = NULL, *bytes = NULL;
        size_t n = strlen(path);
        int r;

        writer_put(w, "{\"path\":\"");
        if (utf8_is_valid(path, n)) {
                writer_put_string(w, path);
                writer_put(w, "\"");
                return 0;
        }
        r = utf8_approximate(path, &text);
        if (r < 0)
                return r;
        r = base64_encode(path, n, &bytes);
        if (r < 0)
                return r;
        writer_put_string(w, text);
        writer_put(w, "\",\"pathBytes\":\"");
        writer_put(w, bytes);
        writer_put(w, "\"");
        return 0;
}

int manifest_writer_add(ManifestWriter *w, const ManifestFile *file)
{
        const FileIdentity *identity = &file->identity;
        size_t before;
        int r;

        if (!manifest_file_is_valid(file))
                return -EINVAL;
        r = writer_begin(w);
        if (r < 0)
                return r;
        before = w->n;
        r = writer_put_path(w, file->path);
        if (r < 0) {
                w->n = before;
                return r;
        }
        writer_put_u64(w, ",\"size\":", identity->size);
        writer_put_i64(w, ",\"mtimeNSec\":", identity->mtime_ns);
        writer_put_i64(w, ",\"ctimeNSec\":", identity->ctime_ns);
        writer_put_u64(w, ",\"device\":", identity->device);
        writer_put_u64(w, ",\"inode\":", identity->inode);
        writer_put_u64(w, ",\"memoryDevice\":", file->memory_device);
        writer_put_u64(w, ",\"memoryInode\":", file->memory_inode);
        writer_put_u64(w, file->packed ? ",\"packed\":true,\"offset\":" : ",\"packed\":false,\"offset\":",
                       file->offset);
        writer_put_u64(w, ",\"descriptor\":", file->descriptor);
        writer_put(w, "}\n");
        w->n_files++;
        w->bytes += identity->size;
        return 0;
}

int manifest_writer_finish(ManifestWriter *w)
{
        if (w->n_files != w->n_promised || w->bytes != w->bytes_promised)
                return -EINVAL;
        return writer_flush(w);
}

ManifestWriter *manifest_writer_free(ManifestWriter *w)
{
        free(w);
        return NULL;
}

struct ManifestReader {
        int fd; /* not owned */
        uint64_t position;
        uint64_t files, bytes, descriptors; /* of the header */
        uint64_t n_files, n_bytes, n_descriptors;
        uint32_t last_descriptor; /* of a file that isn't packed; 0: none yet */
        bool have_pack;
        uint32_t pack_descriptor;
        uint64_t pack_device, pack_inode;
        bool failed;
        char last[PATH_MAX];
        size_t start, end; /* of what is unread in buffer */
        char buffer[MANIFEST_BUFFER_SIZE];
};

/* The text of a line that is still to be parsed. */
typedef struct Text {
        const char *p, *end;
} Text;

/* The next line without its end: 1, 0 at the end of the file. The text lasts until the next call. */
static int reader_line(ManifestReader *r, Text *ret)
{
        for (;;) {
                char *start = r->buffer + r->start, *newline = memchr(start, '\n', r->end - r->start);
                ssize_t n;

                if (newline) {
                        if (newline - start > MANIFEST_LINE_MAX)
                                return -EBADMSG;
                        *ret = (Text){.p = start, .end = newline};
                        r->start = (size_t) (newline + 1 - r->buffer);
                        return 1;
                }
                if (r->end - r->start > MANIFEST_LINE_MAX)
                        return -EBADMSG;
                memmove(r->buffer, start, r->end - r->start);
                r->end -= r->start;
                r->start = 0;
                do
                        n = pread(r->fd, r->buffer + r->end, sizeof(r->buffer) - r->end, (off_t) r->position);
                while (n < 0 && errno == EINTR);
                if (n < 0)
                        return -errno;
                if (n == 0)
                        return r->end > 0 ? -EBADMSG : 0;
                r->end += (size_t) n;
                r->position += (uint64_t) n;
        }
}

static bool take(Text *t, const char *literal)
{
        size_t n = strlen(literal);

        if ((size_t) (t->end - t->p) < n || memcmp(t->p, literal, n) != 0)
                return false;
        t->p += n;
        return true;
}

/* literal, then a number without sign or leading zeros. */
static bool take_u64(Text *t, const char *literal, uint64_t *ret)
{
        const char *start;
        uint64_t v = 0;

        if (!take(t, literal))
                return false;
        for (start = t->p; t->p < t->end && *t->p >= '0' && *t->p <= '9'; t->p++)
                if (__builtin_mul_overflow(v, 10U, &v) ||
                    __builtin_add_overflow(v, (uint64_t) (*t->p - '0'), &v))
                        return false;
        if (t->p == start || (*start == '0' && t->p - start > 1))
                return false;
        *ret = v;
        return true;
}

static bool take_i64(Text *t, const char *literal, int64_t *ret)
{
        bool negative;
        uint64_t v;

        if (!take(t, literal))
                return false;
        negative = take(t, "-");
        if (!take_u64(t, "", &v) || v > (uint64_t) INT64_MAX + (negative ? 1 : 0) || (negative && v == 0))
                return false;
        *ret = negative ? (int64_t) -v : (int64_t) v;
        return true;
}

static int hex_value(char c)
{
        return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* What follows a backslash: only what the writer has to escape. */
static int take_escape(Text *t)
{
        int high, low;

        if (take(t, "\""))
                return '"';
        if (take(t, "\\"))
                return '\\';
        if (take(t, "u000"))
                high = 0;
        else if (take(t, "u001"))
                high = 1;
        else
                return -EBADMSG;
        low = t->p < t->end ? hex_value(*t->p++) : -1;
        if (low < 0 || (high == 0 && low == 0))
                return -EBADMSG;
        return high << 4 | low;
}

/* A string and its closing quote, after the opening one; buffer gets NUL-terminated UTF-8. */
static bool take_string(Text *t, char *buffer, size_t size)
{
        size_t n = 0;

        while (t->p < t->end && *t->p != '"') {
                unsigned char c = (unsigned char) *t->p++;

                if (c < 0x20 || n + 1 >= size)
                        return false;
                if (c == '\\') {
                        int escaped = take_escape(t);
                        if (escaped < 0)
                                return false;
                        c = (unsigned char) escaped;
                }
                buffer[n++] = (char) c;
        }
        buffer[n] = '\0';
        return take(t, "\"") && utf8_is_valid(buffer, n);
}

static int take_path(Text *t, char **ret)
{
        char text[PATH_MAX * 3], bytes[PATH_MAX * 2];
        _cleanup_free_ char *path = NULL, *approximation = NULL;
        int r;

        if (!take(t, "{\"path\":\"") || !take_string(t, text, sizeof(text)))
                return -EBADMSG;
        if (!take(t, ",\"pathBytes\":\"")) {
                path = strdup(text);
                if (!path)
                        return -ENOMEM;
                *ret = TAKE_PTR(path);
                return 0;
        }
        if (!take_string(t, bytes, sizeof(bytes)))
                return -EBADMSG;
        r = base64_decode_string(bytes, &path);
        if (r < 0)
                return r == -ENOMEM ? r : -EBADMSG;
        /* Only where it is needed, and telling people the same. */
        if (utf8_is_valid(path, strlen(path)))
                return -EBADMSG;
        r = utf8_approximate(path, &approximation);
        if (r < 0)
                return r;
        if (!streq(text, approximation))
                return -EBADMSG;
        *ret = TAKE_PTR(path);
        return 0;
}

static int parse_file(Text t, ManifestFile *ret)
{
        _cleanup_manifest_file_ ManifestFile f = {};
        uint64_t descriptor;
        int r;

        r = take_path(&t, &f.path);
        if (r < 0)
                return r;
        if (!take_u64(&t, ",\"size\":", &f.identity.size) ||
            !take_i64(&t, ",\"mtimeNSec\":", &f.identity.mtime_ns) ||
            !take_i64(&t, ",\"ctimeNSec\":", &f.identity.ctime_ns) ||
            !take_u64(&t, ",\"device\":", &f.identity.device) ||
            !take_u64(&t, ",\"inode\":", &f.identity.inode) ||
            !take_u64(&t, ",\"memoryDevice\":", &f.memory_device) ||
            !take_u64(&t, ",\"memoryInode\":", &f.memory_inode))
                return -EBADMSG;
        f.packed = take(&t, ",\"packed\":true");
        if ((!f.packed && !take(&t, ",\"packed\":false")) || !take_u64(&t, ",\"offset\":", &f.offset) ||
            !take_u64(&t, ",\"descriptor\":", &descriptor) || !take(&t, "}") || t.p != t.end ||
            descriptor > INT32_MAX)
                return -EBADMSG;
        f.descriptor = (uint32_t) descriptor;
        if (!manifest_file_is_valid(&f))
                return -EBADMSG;
        *ret = f;
        f = (ManifestFile){};
        return 0;
}

/* What ties the files together. */
static int reader_check(ManifestReader *r, const ManifestFile *f)
{
        if (++r->n_files > r->files || (r->n_files > 1 && strcmp(r->last, f->path) >= 0))
                return -EBADMSG;
        memcpy(r->last, f->path, strlen(f->path) + 1); /* below PATH_MAX, as all valid ones */
        if (__builtin_add_overflow(r->n_bytes, f->identity.size, &r->n_bytes) || r->n_bytes > r->bytes)
                return -EBADMSG;

        if (!f->packed) {
                if (f->descriptor <= r->last_descriptor ||
                    (r->have_pack && f->descriptor == r->pack_descriptor))
                        return -EBADMSG;
                r->last_descriptor = f->descriptor;
                r->n_descriptors++;
        } else if (!r->have_pack) {
                r->have_pack = true;
                r->pack_descriptor = f->descriptor;
                r->pack_device = f->memory_device;
                r->pack_inode = f->memory_inode;
        } else if (f->descriptor != r->pack_descriptor || f->memory_device != r->pack_device ||
                   f->memory_inode != r->pack_inode)
                return -EBADMSG;
        return r->n_descriptors <= r->descriptors ? 0 : -EBADMSG;
}

int manifest_reader_new(int fd, ManifestReader **ret)
{
        _cleanup_(manifest_reader_freep) ManifestReader *reader = NULL;
        Text t = {};
        int r;

        reader = malloc(sizeof(*reader));
        if (!reader)
                return -ENOMEM;
        /* Everything but the buffer, which is large and written before it is read. */
        memset(reader, 0, offsetof(ManifestReader, buffer));
        reader->fd = fd;

        r = reader_line(reader, &t);
        if (r < 0)
                return r;
        if (r == 0 || !take_u64(&t, "{\"iloaderManifest\":1,\"files\":", &reader->files) ||
            !take_u64(&t, ",\"bytes\":", &reader->bytes) ||
            !take_u64(&t, ",\"descriptors\":", &reader->descriptors) || !take(&t, "}") || t.p != t.end ||
            reader->bytes > INT64_MAX || reader->files > INT64_MAX || reader->descriptors > INT32_MAX)
                return -EBADMSG;
        *ret = TAKE_PTR(reader);
        return 0;
}

uint64_t manifest_reader_files(const ManifestReader *r)
{
        return r->files;
}

uint64_t manifest_reader_bytes(const ManifestReader *r)
{
        return r->bytes;
}

uint64_t manifest_reader_descriptors(const ManifestReader *r)
{
        return r->descriptors;
}

static int reader_next(ManifestReader *reader, ManifestFile *ret)
{
        _cleanup_manifest_file_ ManifestFile f = {};
        Text t = {};
        int r;

        r = reader_line(reader, &t);
        if (r < 0)
                return r;
        if (r == 0)
                return reader->n_files == reader->files && reader->n_bytes == reader->bytes ? 0 : -EBADMSG;
        r = parse_file(t, &f);
        if (r < 0)
                return r;
        r = reader_check(reader, &f);
        if (r < 0)
                return r;
        *ret = f;
        f = (ManifestFile){};
        return 1;
}

int manifest_reader_next(ManifestReader *r, ManifestFile *ret)
{
        int k;

        if (r->failed)
                return -EBADMSG;
        k = reader_next(r, ret);
        r->failed = k < 0;
        return k;
}

ManifestReader *manifest_reader_free(ManifestReader *r)
{
        free(r);
        return NULL;
}

int manifest_file_to_json(const ManifestFile *f, struct json_object **ret)
{
        _cleanup_json_ struct json_object *o = NULL;
        int r;

        o = json_object_new_object();
        if (!o)
                return -ENOMEM;
        if ((r = json_add_path(o, "path", f->path)) < 0 ||
            (r = json_add_size(o, "size", f->identity.size)) < 0 ||
            (r = json_add_int(o, "mtimeNSec", f->identity.mtime_ns)) < 0 ||
            (r = json_add_int(o, "ctimeNSec", f->identity.ctime_ns)) < 0 ||
            (r = json_add_size(o, "device", f->identity.device)) < 0 ||
            (r = json_add_size(o, "inode", f->identity.inode)) < 0 ||
            (r = json_add_size(o, "memoryDevice", f->memory_device)) < 0 ||
            (r = json_add_size(o, "memoryInode", f->memory_inode)) < 0 ||
            (r = json_add_bool(o, "packed", f->packed)) < 0 ||
            (r = json_add_size(o, "offset", f->offset)) < 0 ||
            (r = json_add_size(o, "descriptor", f->descriptor)) < 0)
                return r;
        *ret = TAKE_PTR(o);
        return 0;
}

int manifest_file_from_json(struct json_object *o, ManifestFile *ret)
{
        _cleanup_manifest_file_ ManifestFile f = {};
        uint64_t descriptor;
        int r;

        if ((r = json_get_path(o, "path", &f.path)) < 0 ||
            (r = json_get_size(o, "size", &f.identity.size)) < 0 ||
            (r = json_get_int(o, "mtimeNSec", &f.identity.mtime_ns)) < 0 ||
            (r = json_get_int(o, "ctimeNSec", &f.identity.ctime_ns)) < 0 ||
            (r = json_get_size(o, "device", &f.identity.device)) < 0 ||
            (r = json_get_size(o, "inode", &f.identity.inode)) < 0 ||
            (r = json_get_size(o, "memoryDevice", &f.memory_device)) < 0 ||
            (r = json_get_size(o, "memoryInode", &f.memory_inode)) < 0 ||
            (r = json_get_bool(o, "packed", &f.packed)) < 0 ||
            (r = json_get_size(o, "offset", &f.offset)) < 0 ||
            (r = json_get_size(o, "descriptor", &descriptor)) < 0)
                return r == -ENOMEM ? r : -EBADMSG;
        if (descriptor > INT32_MAX)
                return -EBADMSG;
        f.descriptor = (uint32_t) descriptor;
        if (!manifest_file_is_valid(&f))
                return -EBADMSG;
        *ret = f;
        f = (ManifestFile){};
        return 0;
}
