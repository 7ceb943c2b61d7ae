#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <limits.h>
#include <string.h>
#include <sys/mman.h>

#include "base/fd.h"
#include "base/text.h"
#include "checkpoint/manifest.h"

static int new_file(void)
{
        int fd = memfd_create("test-manifest", MFD_CLOEXEC);

        assert_true(fd >= 0);
        return fd;
}

static void write_files(int fd, const ManifestFile *files, size_t n, uint64_t descriptors)
{
        _cleanup_(manifest_writer_freep) ManifestWriter *w = NULL;
        uint64_t bytes = 0;

        for (size_t i = 0; i < n; i++)
                bytes += files[i].identity.size;
        assert_int_equal(manifest_writer_new(fd, n, bytes, descriptors, &w), 0);
        for (size_t i = 0; i < n; i++)
                assert_int_equal(manifest_writer_add(w, &files[i]), 0);
        assert_int_equal(manifest_writer_finish(w), 0);
}

static void assert_same_file(const ManifestFile *a, const ManifestFile *b)
{
        assert_string_equal(a->path, b->path);
        assert_true(file_identity_equal(&a->identity, &b->identity));
        assert_true(a->memory_device == b->memory_device && a->memory_inode == b->memory_inode);
        assert_true(a->packed == b->packed && a->offset == b->offset && a->descriptor == b->descriptor);
}

/* Every kind of path, in order, with the largest and least numbers. */
static size_t sample_files(ManifestFile *files, char *longest)
{
        static char control[] = "\001\n\037\"\\/x", approximate[] = "\377\n\"", plain[] = "config.json",
                    utf8[] = "mod\xc3\xa9le", weights[] = "model-00001.safetensors";
        size_t n = 0;

        memset(longest, 'y', PATH_MAX - 1);
        for (size_t i = 200; i < PATH_MAX - 1; i += 200)
                longest[i] = '/';
        longest[PATH_MAX - 1] = '\0';

        files[n++] = (ManifestFile){.path = control, .packed = true, .descriptor = 64, .memory_inode = 9};
        files[n++] = (ManifestFile){
                .path = plain,
                .identity = {.size = 5,
                             .mtime_ns = INT64_MIN,
                             .ctime_ns = INT64_MAX,
                             .device = UINT64_MAX,
                             .inode = UINT64_MAX},
                .packed = true,
                .offset = INT64_MAX - 5,
                .descriptor = 64,
                .memory_inode = 9,
        };
        files[n++] = (ManifestFile){
                .path = weights,
                .identity =
                        {.size = UINT64_C(1) << 40, .mtime_ns = -1, .ctime_ns = 0, .device = 1, .inode = 2},
                .memory_device = UINT64_MAX,
                .memory_inode = UINT64_MAX,
                .descriptor = 65,
        };
        files[n++] = (ManifestFile){.path = utf8, .descriptor = 66};
        files[n++] = (ManifestFile){.path = longest, .descriptor = INT32_MAX};
        files[n++] = (ManifestFile){.path = approximate, .packed = true, .descriptor = 64, .memory_inode = 9};
        return n;
}

static void test_round_trip(_unused_ void **state)
{
        _cleanup_(manifest_reader_freep) ManifestReader *r = NULL;
        _cleanup_manifest_file_ ManifestFile end = {};
        _cleanup_close_ int fd = new_file();
        char longest[PATH_MAX];
        ManifestFile files[6];
        size_t n = sample_files(files, longest);

        write_files(fd, files, n, 4);
        /* The descriptor's own offset doesn't matter. */
        assert_int_equal(lseek(fd, 77, SEEK_SET), 77);
        assert_int_equal(manifest_reader_new(fd, &r), 0);
        assert_int_equal(manifest_reader_files(r), n);
        assert_int_equal(manifest_reader_bytes(r), (UINT64_C(1) << 40) + 5);
        assert_int_equal(manifest_reader_descriptors(r), 4);
        for (size_t i = 0; i < n; i++) {
                _cleanup_manifest_file_ ManifestFile f = {};

                assert_int_equal(manifest_reader_next(r, &f), 1);
                assert_same_file(&f, &files[i]);
        }
        assert_int_equal(manifest_reader_next(r, &end), 0);
        assert_int_equal(manifest_reader_next(r, &end), 0);
        assert_int_equal(lseek(fd, 0, SEEK_CUR), 77);
}

/* The lines are JSON as anybody reads it, with the interface's fields. */
static void test_is_json(_unused_ void **state)
{
        _cleanup_close_ int fd = new_file();
        _cleanup_free_ char *text = NULL;
        char longest[PATH_MAX], *line, *next;
        ManifestFile files[6];
        size_t n = sample_files(files, longest), size, i = 0;

        files[1].identity.device = files[1].identity.inode = INT64_MAX; /* what the interface can say */
        files[2].memory_device = files[2].memory_inode = INT64_MAX;
        write_files(fd, files, n, 4);
        assert_int_equal(lseek(fd, 0, SEEK_SET), 0);
        assert_int_equal(fd_read_file(fd, 1 << 20, &text, &size), 0);
        line = strchr(text, '\n') + 1;
        for (; (next = strchr(line, '\n')); line = next + 1, i++) {
                _cleanup_json_ struct json_object *o = NULL, *built = NULL;
                _cleanup_manifest_file_ ManifestFile f = {};
                _cleanup_free_ char *again = NULL;

                assert_int_equal(json_parse_strict(line, (size_t) (next - line), &o, NULL), 0);
                assert_int_equal(manifest_file_from_json(o, &f), 0);
                assert_same_file(&f, &files[i]);
                assert_int_equal(manifest_file_to_json(&f, &built), 0);
                assert_int_equal(json_object_equal(o, built), 1);
        }
        assert_int_equal(i, n);
}

static void test_many(_unused_ void **state)
{
        _cleanup_(manifest_writer_freep) ManifestWriter *w = NULL;
        _cleanup_(manifest_reader_freep) ManifestReader *r = NULL;
        _cleanup_close_ int fd = new_file();
        char path[64];

        assert_int_equal(manifest_writer_new(fd, 20000, 20000, 20000, &w), 0);
        for (unsigned i = 0; i < 20000; i++) {
                ManifestFile f = {.path = path, .identity.size = 1, .descriptor = 64 + i};

                (void) snprintf(path, sizeof(path), "layers/%05u/weights.bin", i);
                assert_int_equal(manifest_writer_add(w, &f), 0);
        }
        assert_int_equal(manifest_writer_finish(w), 0);
        assert_int_equal(manifest_reader_new(fd, &r), 0);
        for (unsigned i = 0; i < 20000; i++) {
                _cleanup_manifest_file_ ManifestFile f = {};

                (void) snprintf(path, sizeof(path), "layers/%05u/weights.bin", i);
                assert_int_equal(manifest_reader_next(r, &f), 1);
                assert_string_equal(f.path, path);
                assert_int_equal(f.descriptor, 64 + i);
        }
}

static void test_writer_refuses(_unused_ void **state)
{
        static char good[] = "a", absolute[] = "/a", up[] = "a/../b", empty[] = "", slash[] = "a/";
        static const ManifestFile bad[] = {
                {.path = absolute, .descriptor = 64},
                {.path = up, .descriptor = 64},
                {.path = empty, .descriptor = 64},
                {.path = slash, .descriptor = 64},
                {.path = good, .descriptor = 2},
                {.path = good, .descriptor = UINT32_MAX},
                {.path = good, .descriptor = 64, .offset = 1},
                {.path = good, .descriptor = 64, .identity.size = (uint64_t) INT64_MAX + 1},
                {.path = good, .descriptor = 64, .packed = true, .offset = INT64_MAX, .identity.size = 1},
        };
        _cleanup_close_ int fd = new_file();

        for (size_t i = 0; i < ELEMENTSOF(bad); i++) {
                _cleanup_(manifest_writer_freep) ManifestWriter *w = NULL;

                assert_int_equal(manifest_writer_new(fd, 1, bad[i].identity.size, 1, &w), 0);
                assert_int_equal(manifest_writer_add(w, &bad[i]), -EINVAL);
        }
        /* Other figures than were promised. */
        for (unsigned i = 0; i < 3; i++) {
                _cleanup_(manifest_writer_freep) ManifestWriter *w = NULL;
                const ManifestFile f = {.path = good, .descriptor = 64, .identity.size = 7};

                assert_int_equal(manifest_writer_new(fd, i == 0 ? 2 : 1, i == 1 ? 8 : 7, 1, &w), 0);
                assert_int_equal(manifest_writer_add(w, &f), 0);
                assert_int_equal(manifest_writer_finish(w), i < 2 ? -EINVAL : 0);
        }
}

#define HEADER(files, bytes, descriptors)                                                                    \
        "{\"iloaderManifest\":1,\"files\":" files ",\"bytes\":" bytes ",\"descriptors\":" descriptors "}\n"
#define TAIL(packed, offset, descriptor)                                                                     \
        ",\"memoryDevice\":1,\"memoryInode\":2,\"packed\":" packed ",\"offset\":" offset                     \
        ",\"descriptor\":" descriptor "}\n"
#define IDENTITY       ",\"mtimeNSec\":1,\"ctimeNSec\":-1,\"device\":1,\"inode\":1"
#define LARGE(path, d) "{\"path\":\"" path "\",\"size\":1" IDENTITY TAIL("false", "0", d)
#define SMALL(path, o) "{\"path\":\"" path "\",\"size\":1" IDENTITY TAIL("true", o, "64")

/* Reads all of a text: the number of files, or the error. */
static int read_text(const char *text, size_t n)
{
        _cleanup_(manifest_reader_freep) ManifestReader *reader = NULL;
        _cleanup_close_ int fd = new_file();
        int r, files = 0;

        assert_int_equal(fd_write_full(fd, text, n), 0);
        r = manifest_reader_new(fd, &reader);
        while (r >= 0) {
                _cleanup_manifest_file_ ManifestFile f = {};

                r = manifest_reader_next(reader, &f);
                if (r == 0)
                        return files;
                if (r > 0)
                        files++;
                else /* once wrong, always wrong */
                        assert_int_equal(manifest_reader_next(reader, &f), -EBADMSG);
        }
        return r;
}

static void test_hostile(_unused_ void **state)
{
        static const char *const bad[] = {
                "",
                "\n",
                "{}\n",
                "{\"iloaderManifest\":2,\"files\":0,\"bytes\":0,\"descriptors\":0}\n",
                "{\"iloaderManifest\":1,\"files\":0,\"bytes\":0,\"descriptors\":0}",
                HEADER("-1", "0", "0"),
                HEADER("00", "0", "0"),
                HEADER("", "0", "0"),
                HEADER("1e3", "0", "0"),
                HEADER("18446744073709551616", "0", "0"),
                HEADER("0", "9223372036854775808", "0"),
                HEADER("0", "0", "4294967295"),
                /* more or fewer files, bytes or descriptors than the header says */
                HEADER("1", "0", "0"),
                HEADER("0", "0", "1") LARGE("a", "64"),
                HEADER("1", "2", "1") LARGE("a", "64"),
                HEADER("1", "0", "1") LARGE("a", "64"),
                HEADER("1", "1", "0") LARGE("a", "64"),
                HEADER("1", "1", "1") LARGE("a", "64") "\n",
                HEADER("1", "1", "1") LARGE("a", "64") "x",
                HEADER("2", "2", "2") LARGE("a", "64"),
                /* order, twice the same, descriptors */
                HEADER("2", "2", "2") LARGE("b", "64") LARGE("a", "65"),
                HEADER("2", "2", "2") LARGE("a", "64") LARGE("a", "65"),
                HEADER("2", "2", "2") LARGE("a", "64") LARGE("b", "64"),
                HEADER("2", "2", "2") LARGE("a", "65") LARGE("b", "64"),
                HEADER("2", "2", "2") SMALL("a", "0") LARGE("b", "64"),
                HEADER("2", "2", "2")
                        SMALL("a", "0") "{\"path\":\"b\",\"size\":1" IDENTITY TAIL("true", "0", "65"),
                /* paths */
                HEADER("1", "1", "1") LARGE("", "64"),
                HEADER("1", "1", "1") LARGE("/etc/passwd", "64"),
                HEADER("1", "1", "1") LARGE("../x", "64"),
                HEADER("1", "1", "1") LARGE("a//b", "64"),
                HEADER("1", "1", "1") LARGE("a/./b", "64"),
                HEADER("1", "1", "1") LARGE("a\\u0000b", "64"),
                HEADER("1", "1", "1") LARGE("a\\n", "64"),
                HEADER("1", "1", "1") LARGE("a\\u0041", "64"),
                HEADER("1", "1", "1") LARGE("a\\u001", "64"),
                HEADER("1", "1", "1") LARGE("a\\", "64"),
                HEADER("1", "1", "1") LARGE("a\001", "64"),
                HEADER("1", "1", "1") LARGE("\377", "64"),
                HEADER("1", "1", "1") LARGE("a\",\"pathBytes\":\"YQ==", "64"),
                HEADER("1", "1", "1") LARGE("a\",\"pathBytes\":\"/w==", "64"),
                HEADER("1", "1", "1") LARGE("\xef\xbf\xbd\",\"pathBytes\":\"/x==", "64"),
                HEADER("1", "1", "1") LARGE("\xef\xbf\xbd\",\"pathBytes\":\"/w=", "64"),
                HEADER("1", "1", "1") LARGE("\xef\xbf\xbd\",\"pathBytes\":\"", "64"),
                /* numbers */
                HEADER("1", "1", "1") LARGE("a", "2"),
                HEADER("1", "1", "1") LARGE("a", "2147483648"),
                HEADER("1", "1", "1") LARGE("a", "064"),
                HEADER("1", "1", "1") SMALL("a", "9223372036854775807"),
                HEADER("1", "1", "1") SMALL("a", "18446744073709551616"),
                HEADER("1", "1", "1") "{\"path\":\"a\",\"size\":1" IDENTITY TAIL("false", "1", "64"),
                HEADER("1", "1", "1") "{\"path\":\"a\",\"size\":1" IDENTITY TAIL("null", "0", "64"),
                HEADER("1", "1", "1") "{\"path\":\"a\",\"size\":\"1\"" IDENTITY TAIL("false", "0", "64"),
                HEADER("1", "1", "1") "{\"path\":\"a\",\"size\": 1" IDENTITY TAIL("false", "0", "64"),
                HEADER("1", "1", "1") "{\"path\":\"a\",\"size\":1,\"size\":1" IDENTITY TAIL("false", "0",
                                                                                            "64"),
                HEADER("1", "1", "1") "{\"size\":1,\"path\":\"a\"" IDENTITY TAIL("false", "0", "64"),
                HEADER("1", "1", "1") "{\"path\":\"a\"}\n",
                HEADER("1", "1", "1") "{\"path\":\"a\n",
        };
        static const char good[] = HEADER("4", "4", "3") SMALL("\xef\xbf\xbd\",\"pathBytes\":\"/w==", "0");
        static const char four[] = HEADER("4", "4", "3") SMALL("\\u0001", "0") LARGE("a", "65")
                SMALL("b\\\"\\\\", "1") LARGE("c", "66");

        for (size_t i = 0; i < ELEMENTSOF(bad); i++) {
                int r = read_text(bad[i], strlen(bad[i]));
                if (r != -EBADMSG)
                        fail_msg("%zu: %d for %s", i, r, bad[i]);
        }
        assert_int_equal(read_text(four, sizeof(four) - 1), 4);
        assert_int_equal(read_text(good, sizeof(good) - 1), -EBADMSG); /* three are missing */
        /* No part of a good one is one. */
        for (size_t n = 0; n < sizeof(four) - 1; n++)
                assert_int_equal(read_text(four, n), -EBADMSG);
        /* Bytes that are changed are noticed or mean a value; never more. */
        for (size_t i = 0; i < sizeof(four) - 1; i++) {
                for (unsigned c = 0; c < 256; c += 5) {
                        char text[sizeof(four)];
                        int r;

                        memcpy(text, four, sizeof(four));
                        text[i] = (char) c;
                        r = read_text(text, sizeof(four) - 1);
                        assert_true(r == 4 || r == -EBADMSG);
                }
        }
}

static void test_long_lines(_unused_ void **state)
{
        _cleanup_free_ char *text = NULL;
        size_t size = 300000;

        /* A line without end, and one whose path is too long, are given up early. */
        text = malloc(size);
        assert_non_null(text);
        memset(text, 'a', size);
        assert_int_equal(read_text(text, size), -EBADMSG);
        for (size_t n = 4090; n < 100000; n += n < 4100 ? 1 : 30000) {
                static const char head[] = HEADER("1", "1", "1") "{\"path\":\"",
                                  tail[] = "\",\"size\":1" IDENTITY TAIL("false", "0", "64");

                memcpy(text, head, sizeof(head) - 1);
                memset(text + sizeof(head) - 1, 'a', n);
                memcpy(text + sizeof(head) - 1 + n, tail, sizeof(tail) - 1);
                assert_int_equal(read_text(text, sizeof(head) - 1 + n + sizeof(tail) - 1),
                                 n < PATH_MAX ? 1 : -EBADMSG);
        }
}

static void test_from_json(_unused_ void **state)
{
        static const char *const bad[] = {
                "{}",
                "{\"path\":\"a\",\"size\":1" IDENTITY TAIL("false", "0", "2"),
                "{\"path\":\"a\",\"size\":1" IDENTITY TAIL("false", "0", "4294967360"),
                "{\"path\":\"a\",\"size\":-1" IDENTITY TAIL("false", "0", "64"),
                "{\"path\":\"/a\",\"size\":1" IDENTITY TAIL("false", "0", "64"),
                "{\"path\":\"a\",\"size\":1" IDENTITY TAIL("1", "0", "64"),
                "{\"path\":\"a\",\"size\":1" IDENTITY TAIL("true", "9223372036854775807", "64"),
                "{\"path\":7,\"size\":1" IDENTITY TAIL("false", "0", "64"),
        };

        for (size_t i = 0; i < ELEMENTSOF(bad); i++) {
                _cleanup_json_ struct json_object *o = NULL;
                ManifestFile f = {};

                assert_int_equal(json_parse_strict(bad[i], strcspn(bad[i], "\n"), &o, NULL), 0);
                assert_int_equal(manifest_file_from_json(o, &f), -EBADMSG);
                assert_null(f.path);
        }
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_round_trip), cmocka_unit_test(test_is_json),
                cmocka_unit_test(test_many),       cmocka_unit_test(test_writer_refuses),
                cmocka_unit_test(test_hostile),    cmocka_unit_test(test_long_lines),
                cmocka_unit_test(test_from_json),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
