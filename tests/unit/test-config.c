/* daemon/config and what it is made of, on directories of files. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <syslog.h>

#include "base/fd.h"
#include "base/path.h"
#include "base/text.h"
#include "daemon/config.h"
#include "daemon/configkey.h"
#include "daemon/keyfile.h"
#include "tests/unit/scratch.h"

static int setup(void **state)
{
        const Scratch *d;

        assert_int_equal(scratch_setup(state), 0);
        d = *state;
        assert_int_equal(mkdirat(d->fd, "caches", 0755), 0);
        return 0;
}

static void put_bytes(const Scratch *d, const char *path, const void *data, size_t n)
{
        _cleanup_close_ int fd = openat(d->fd, path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

        assert_true(fd >= 0);
        assert_int_equal(fd_write_full(fd, data, n), 0);
        assert_int_equal(fchmod(fd, 0644), 0);
}

static void put(const Scratch *d, const char *path, const char *text)
{
        put_bytes(d, path, text, strlen(text));
}

static CacheSettings *load(const Scratch *d)
{
        _cleanup_config_fault_ ConfigFault fault = {};
        CacheSettings *s = NULL;
        int r;

        r = cache_config_load(d->fd, "qwen", &s, &fault);
        if (r < 0)
                fail_msg("%d: %s:%u: %s", r, fault.path, fault.line, fault.message);
        assert_null(fault.message);
        return s;
}

/* The fault's path must end in file; words are parts of its message. */
static void expect_fault(const Scratch *d, int error, const char *file, unsigned line, const char *words)
{
        _cleanup_config_fault_ ConfigFault fault = {};
        CacheSettings *s = (CacheSettings *) 1;
        size_t n;

        assert_int_equal(cache_config_load(d->fd, "qwen", &s, &fault), error);
        assert_ptr_equal(s, (CacheSettings *) 1);
        assert_non_null(fault.path);
        assert_non_null(fault.message);
        n = strlen(fault.path);
        if (n < strlen(file) || !streq(fault.path + n - strlen(file), file) || fault.line != line ||
            !strstr(fault.message, words))
                fail_msg("%s:%u: %s", fault.path, fault.line, fault.message);
        assert_non_null(startswith(fault.path, d->path));
}

static void test_cache_defaults(void **state)
{
        const Scratch *d = *state;
        _cleanup_(cache_settings_freep) CacheSettings *s = NULL;

        put(d, "caches/qwen.conf", "[Cache]\nSource=/models//qwen/../qwen/\n");
        s = load(d);
        assert_string_equal(s->name, "qwen");
        assert_string_equal(s->source, "/models/qwen");
        assert_string_equal(s->owner, "iloader");
        assert_null(s->group);
        assert_null(s->patterns);
        assert_int_equal(s->mode, 0400);
        assert_int_equal(s->chunk_size, MIB(64));
}

static void test_cache_all_keys(void **state)
{
        const Scratch *d = *state;
        _cleanup_(cache_settings_freep) CacheSettings *s = NULL;

        put(d, "caches/qwen.conf",
            "# a comment\n; and one\n\n[Cache]\n  Source = /models/q w = n ; 1  "
            "\nView=/views/q\nPIDFile=/run/q.pid\r\n"
            "LogFile=/var/log/q.log\nPattern=*.safetensors\nPattern=*.json # no "
            "comment\nExclude=.git/\nWorkers=8\n"
            "ChunkSize=1048576\nMaxMemoryFraction=0.5\nMaxMemoryBytes=32GiB\nReserveBytes=4G\n"
            "MaxResidentBytes=68719476736\nIdleTTLSec=1.5\nForce=yes\nUser=alice\nGroup=1234\nMode=0440\n");
        s = load(d);
        assert_string_equal(s->source, "/models/q w = n ; 1");
        assert_string_equal(s->view, "/views/q");
        assert_string_equal(s->pid_file, "/run/q.pid");
        assert_string_equal(s->log_file, "/var/log/q.log");
        assert_int_equal(strv_length(s->patterns), 2);
        assert_string_equal(s->patterns[0], "*.safetensors");
        assert_string_equal(s->patterns[1], "*.json # no comment");
        assert_string_equal(s->excludes[0], ".git/");
        assert_int_equal(s->workers, 8);
        assert_int_equal(s->chunk_size, 1048576);
        assert_true(s->memory_fraction == 0.5);
        assert_int_equal(s->max_memory_bytes, GIB(32));
        assert_int_equal(s->reserve_bytes, GIB(4));
        assert_int_equal(s->max_resident_bytes, GIB(64));
        assert_int_equal(s->idle_ttl, 1500000);
        assert_true(s->force);
        assert_string_equal(s->owner, "alice");
        assert_string_equal(s->group, "1234");
        assert_int_equal(s->mode, 0440);
}

/* The last assignment wins, an empty one restores the default. */
static void test_cache_resets(void **state)
{
        const Scratch *d = *state;
        _cleanup_(cache_settings_freep) CacheSettings *s = NULL;

        put(d, "caches/qwen.conf",
            "[Cache]\nSource=/a\nSource=/b\nView=/"
            "v\nView=\nPattern=x\nPattern=\nPattern=y\nExclude=z\nExclude=\n"
            "Workers=9\nWorkers=\nChunkSize=4096\nChunkSize=\nMaxMemoryFraction=0.1\nMaxMemoryFraction=\n"
            "MaxMemoryBytes=1\nMaxMemoryBytes=\nReserveBytes=0\nReserveBytes=\nIdleTTLSec=9\nIdleTTLSec="
            "\nForce=on\n"
            "Force=\nUser=alice\nUser=\nGroup=g\nGroup=\nMode=0444\nMode=\nMaxResidentBytes="
            "4\nMaxResidentBytes=\n");
        s = load(d);
        assert_string_equal(s->source, "/b");
        assert_null(s->view);
        assert_int_equal(strv_length(s->patterns), 1);
        assert_string_equal(s->patterns[0], "y");
        assert_null(s->excludes);
        assert_int_equal(s->workers, 0);
        assert_int_equal(s->chunk_size, START_CHUNK_SIZE_DEFAULT);
        assert_true(s->memory_fraction == START_MEMORY_FRACTION_DEFAULT);
        assert_int_equal(s->max_memory_bytes, UINT64_MAX);
        assert_int_equal(s->reserve_bytes, START_RESERVE_DEFAULT);
        assert_int_equal(s->idle_ttl, USEC_INFINITY);
        assert_int_equal(s->max_resident_bytes, UINT64_MAX);
        assert_false(s->force);
        assert_string_equal(s->owner, "iloader");
        assert_null(s->group);
        assert_int_equal(s->mode, 0400);
}

static void test_cache_infinity(void **state)
{
        const Scratch *d = *state;
        _cleanup_(cache_settings_freep) CacheSettings *s = NULL;

        put(d, "caches/qwen.conf", "[Cache]\nSource=/a\nMaxMemoryBytes=infinity\nIdleTTLSec=infinity\n");
        s = load(d);
        assert_int_equal(s->max_memory_bytes, UINT64_MAX);
        assert_int_equal(s->idle_ttl, USEC_INFINITY);
}

static void test_dropins(void **state)
{
        const Scratch *d = *state;
        _cleanup_(cache_settings_freep) CacheSettings *s = NULL;

        put(d, "caches/qwen.conf", "[Cache]\nSource=/a\nWorkers=1\nPattern=first\n");
        assert_int_equal(mkdirat(d->fd, "caches/qwen.conf.d", 0755), 0);
        put(d, "caches/qwen.conf.d/20-b.conf", "[Cache]\nWorkers=3\nPattern=third\n");
        put(d, "caches/qwen.conf.d/10-a.conf", "[Cache]\nWorkers=2\nPattern=second\n");
        put(d, "caches/qwen.conf.d/30-c.conf.bak", "garbage\n");
        put(d, "caches/qwen.conf.d/.hidden.conf", "garbage\n");
        put(d, "caches/qwen.conf.d/README", "garbage\n");
        s = load(d);
        assert_int_equal(s->workers, 3);
        assert_int_equal(strv_length(s->patterns), 3);
        assert_string_equal(s->patterns[1], "second");
        assert_string_equal(s->patterns[2], "third");
        put(d, "caches/qwen.conf.d/30-d.conf", "[Cache]\n\nWrokers=3\n");
        expect_fault(d, -EINVAL, "/caches/qwen.conf.d/30-d.conf", 3, "did you mean 'Workers='?");
}

static void test_missing(void **state)
{
        const Scratch *d = *state;
        ConfigFault fault = {};
        CacheSettings *s = NULL;
        char *owner = NULL;

        assert_int_equal(cache_config_load(d->fd, "qwen", &s, &fault), -ENOENT);
        assert_null(fault.message);
        assert_int_equal(cache_config_owner(d->fd, "qwen", &owner), -ENOENT);
        /* Drop-ins alone make no cache. */
        assert_int_equal(mkdirat(d->fd, "caches/qwen.conf.d", 0755), 0);
        put(d, "caches/qwen.conf.d/a.conf", "[Cache]\nSource=/a\n");
        assert_int_equal(cache_config_load(d->fd, "qwen", &s, &fault), -ENOENT);
        assert_int_equal(path_remove_tree(d->fd, "caches", 10), 0);
        assert_int_equal(cache_config_load(d->fd, "qwen", &s, &fault), -ENOENT);
        assert_null(fault.message);
}

static void test_owner(void **state)
{
        const Scratch *d = *state;
        _cleanup_free_ char *first = NULL, *second = NULL;
        char *none = NULL;

        put(d, "caches/qwen.conf", "[Cache]\nSource=/a\nUser=alice\n");
        assert_int_equal(cache_config_owner(d->fd, "qwen", &first), 0);
        assert_string_equal(first, "alice");
        put(d, "caches/qwen.conf", "[Cache]\nSource=/a\n");
        assert_int_equal(cache_config_owner(d->fd, "qwen", &second), 0);
        assert_string_equal(second, "iloader");
        /* Broken, and still not free for anybody. */
        put(d, "caches/qwen.conf", "[Cache]\nSource=/a\nUser=alice\nx\n");
        assert_int_equal(cache_config_owner(d->fd, "qwen", &none), -EINVAL);
}

static void test_bad_names(void **state)
{
        static const char *const names[] = {"", "../qwen", "a/b", ".hidden", "-x", "a..b"};
        const Scratch *d = *state;

        for (size_t i = 0; i < ELEMENTSOF(names); i++) {
                _cleanup_config_fault_ ConfigFault fault = {};
                CacheSettings *s = NULL;

                assert_int_equal(cache_config_load(d->fd, names[i], &s, &fault), -EINVAL);
                assert_string_equal(fault.path, names[i]);
        }
}

typedef struct BadText {
        const char *text;
        unsigned line;
        const char *words;
} BadText;

static void test_bad_syntax(void **state)
{
        static const BadText bad[] = {
                {"", 0, "no 'Source='"},
                {"[Cache]\n", 0, "no 'Source='"},
                {"[Cache]\nSource=\n", 0, "no 'Source='"},
                {"Source=/a\n", 1, "before any section"},
                {"\n\nSource=/a", 3, "before any section"},
                {"[Cache]\nSource\n", 2, "expected 'KEY=value'"},
                {"[Cache]\nSource: /a\n", 2, "expected 'KEY=value'"},
                {"[Cache]\nSource:=/a\n", 2, "expected 'KEY=value'"},
                {"[Cache]\n=/a\n", 2, "no key before"},
                {"[Cache]\n \t = /a\n", 2, "no key before"},
                {"[Cache\nSource=/a\n", 1, "'[NAME]'"},
                {"[]\nSource=/a\n", 1, "'[NAME]'"},
                {"[Cache]]\nSource=/a\n", 1, "'[NAME]'"},
                {"[Cache] # x\nSource=/a\n", 1, "'[NAME]'"},
                {"[Cache]\nSource=/a\n[Cache\n", 3, "'[NAME]'"},
                {"[Cach]\nSource=/a\n", 1, "unknown section '[Cach]': this file has only [Cache]"},
                {"[cache]\nSource=/a\n", 1, "unknown section '[cache]'"},
                {"[Cache]\nSource=/a\n[Manager]\n", 3, "unknown section '[Manager]'"},
                {"[Cache ]\nSource=/a\n", 1, "unknown section"},
                {"[Cache]\nSource=/a\001\n", 2, "control character"},
                {"[Cache]\nSource=/a\177\n", 2, "control character"},
                {"[Cache]\nSource=/a\rView=/b\n", 2, "control character"},
                /* The line is where the assignment begins. */
                {"[Cache]\nSource=/a\nWorkers=\\\n# between\n\\\nx\n", 3, "'Workers=x'"},
        };
        const Scratch *d = *state;

        for (size_t i = 0; i < ELEMENTSOF(bad); i++) {
                put(d, "caches/qwen.conf", bad[i].text);
                expect_fault(d, -EINVAL, "/caches/qwen.conf", bad[i].line, bad[i].words);
        }
}

static void test_unknown_keys(void **state)
{
        static const BadText bad[] = {
                {"[Cache]\nSorce=/a\n", 2,
                 "unknown key 'Sorce=' in section [Cache]: did you mean 'Source=' or 'Force='?"},
                {"[Cache]\nsource=/a\n", 2, "did you mean 'Source='?"},
                {"[Cache]\nMaxMemoryByte=1\n", 2, "did you mean 'MaxMemoryBytes='"},
                {"[Cache]\nPidfile=/a\n", 2, "did you mean 'PIDFile='?"},
                {"[Cache]\nSomethingElse=/a\n", 2, "there are 'Source=', 'View=',"},
                {"[Cache]\nCachesMax=1\n", 2, "unknown key 'CachesMax='"},
        };
        const Scratch *d = *state;
        char text[4096] = "[Cache]\n";

        for (size_t i = 0; i < ELEMENTSOF(bad); i++) {
                put(d, "caches/qwen.conf", bad[i].text);
                expect_fault(d, -EINVAL, "/caches/qwen.conf", bad[i].line, bad[i].words);
        }
        memset(text + 8, 'K', 3000);
        strcpy(text + 3008, "=1\n");
        put(d, "caches/qwen.conf", text);
        expect_fault(d, -EINVAL, "/caches/qwen.conf", 2, "unknown key 'KKK");
}

static void test_bad_values(void **state)
{
        static const char *const bad[] = {
                "Source=relative",
                "Source=~/models",
                "View=./v",
                "PIDFile=q.pid",
                "LogFile=q.log",
                "Workers=0",
                "Workers=257",
                "Workers=-1",
                "Workers=1.5",
                "Workers=4K",
                "Workers=+1",
                "Workers=0x4",
                "Workers=18446744073709551617",
                "ChunkSize=64MiB",
                "ChunkSize=64M",
                "ChunkSize=4095",
                "ChunkSize=1073741825",
                "ChunkSize=-4096",
                "ChunkSize=1e6",
                "MaxMemoryFraction=0",
                "MaxMemoryFraction=1.1",
                "MaxMemoryFraction=nan",
                "MaxMemoryFraction=90%",
                "MaxMemoryFraction=-0.5",
                "MaxMemoryFraction=.",
                "MaxMemoryBytes=0",
                "MaxMemoryBytes=64 MiB",
                "MaxMemoryBytes=1.5GiB",
                "MaxMemoryBytes=-1",
                "MaxMemoryBytes=18446744073709551615",
                "MaxMemoryBytes=18446744073709551616",
                "MaxMemoryBytes=16777216TiB",
                "MaxMemoryBytes=1e3",
                "MaxMemoryBytes=0x10",
                "ReserveBytes=infinity",
                "ReserveBytes=x",
                "MaxResidentBytes=0",
                "MaxResidentBytes=infinity",
                "IdleTTLSec=0",
                "IdleTTLSec=-1",
                "IdleTTLSec=5min",
                "IdleTTLSec=1.0000001",
                "IdleTTLSec=99999999999999999999",
                "Force=maybe",
                "Force=2",
                "User=a b",
                "User=a:b",
                "User=-x",
                "User=a/b",
                "Group=a,b",
                "Mode=0600",
                "Mode=0777",
                "Mode=9",
                "Mode=0o444",
                "Mode=04440",
        };
        const Scratch *d = *state;

        for (size_t i = 0; i < ELEMENTSOF(bad); i++) {
                _cleanup_free_ char *text = NULL, *words = NULL;

                assert_int_equal(text_format(&text, "[Cache]\nSource=/a\n%s\n", bad[i]), 0);
                assert_int_equal(text_format(&words, "'%s' is not acceptable: expected ", bad[i]), 0);
                put(d, "caches/qwen.conf", text);
                expect_fault(d, -EINVAL, "/caches/qwen.conf", 3, words);
        }
}

static void test_strange_bytes(void **state)
{
        static const char nul[] = "[Cache]\nSource=/a\0b\n",
                          bom[] = "\xef\xbb\xbf[Cache]\nSource=/\xff\xfe\n";
        const Scratch *d = *state;
        _cleanup_(cache_settings_freep) CacheSettings *s = NULL;

        put_bytes(d, "caches/qwen.conf", nul, sizeof(nul) - 1);
        expect_fault(d, -EINVAL, "/caches/qwen.conf", 2, "control character");
        /* A path's bytes are any. */
        put_bytes(d, "caches/qwen.conf", bom, sizeof(bom) - 1);
        s = load(d);
        assert_string_equal(s->source, "/\xff\xfe");
}

static void test_continuation(void **state)
{
        const Scratch *d = *state;
        _cleanup_(cache_settings_freep) CacheSettings *s = NULL;

        put(d, "caches/qwen.conf",
            "# no \\\n[Cache]\nSource=/a\\\n; left out \\\n# this "
            "too\nb\nPattern=x\\\n\nPattern=\\\nWorkers=2\\");
        s = load(d);
        assert_string_equal(s->source, "/a b");
        assert_int_equal(strv_length(s->patterns), 2);
        assert_string_equal(s->patterns[0], "x");
        assert_string_equal(s->patterns[1], "Workers=2");
}

static void test_sizes(void **state)
{
        const size_t limit = MIB(1);
        const Scratch *d = *state;
        _cleanup_(cache_settings_freep) CacheSettings *s = NULL;
        _cleanup_free_ char *text = malloc(limit + 2);

        assert_non_null(text);
        memset(text, '\n', limit + 2);
        memcpy(text, "[Cache]\nSource=/a", 17);
        put_bytes(d, "caches/qwen.conf", text, limit);
        s = load(d);
        put_bytes(d, "caches/qwen.conf", text, limit + 1);
        expect_fault(d, -EINVAL, "/caches/qwen.conf", 0, "larger than 1 MiB");
        memset(text + 17, 'x', limit - 17);
        put_bytes(d, "caches/qwen.conf", text, limit);
        expect_fault(d, -EINVAL, "/caches/qwen.conf", 2, "longer than 65536");
        /* The same in many continued lines. */
        for (size_t i = 25; i + 1 < limit; i += 8)
                memcpy(text + i, "\\\n", 2);
        put_bytes(d, "caches/qwen.conf", text, limit);
        expect_fault(d, -EINVAL, "/caches/qwen.conf", 2, "longer than 65536");
}

static void test_too_many_patterns(void **state)
{
        const Scratch *d = *state;
        _cleanup_free_ char *text = calloc(1, 32768);
        size_t n;

        assert_non_null(text);
        n = (size_t) sprintf(text, "[Cache]\nSource=/a\n");
        for (unsigned i = 0; i < 1025; i++)
                n += (size_t) sprintf(text + n, "Pattern=%u\n", i);
        put(d, "caches/qwen.conf", text);
        expect_fault(d, -EINVAL, "/caches/qwen.conf", 1027, "at most 1024");
}

static void test_too_many_dropins(void **state)
{
        const Scratch *d = *state;

        put(d, "caches/qwen.conf", "[Cache]\nSource=/a\n");
        assert_int_equal(mkdirat(d->fd, "caches/qwen.conf.d", 0755), 0);
        for (unsigned i = 0; i < 257; i++) {
                char path[64];

                (void) snprintf(path, sizeof(path), "caches/qwen.conf.d/%u.conf", i);
                put(d, path, "[Cache]\n");
        }
        expect_fault(d, -EINVAL, "/caches/qwen.conf.d", 0, "more than 256");
}

static void test_not_files(void **state)
{
        const Scratch *d = *state;

        put(d, "real.conf", "[Cache]\nSource=/a\n");
        assert_int_equal(symlinkat("../real.conf", d->fd, "caches/qwen.conf"), 0);
        expect_fault(d, -EPERM, "/caches/qwen.conf", 0, "symbolic link");
        assert_int_equal(unlinkat(d->fd, "caches/qwen.conf", 0), 0);
        assert_int_equal(mkfifoat(d->fd, "caches/qwen.conf", 0600), 0);
        expect_fault(d, -EINVAL, "/caches/qwen.conf", 0, "regular file");
        assert_int_equal(unlinkat(d->fd, "caches/qwen.conf", 0), 0);
        assert_int_equal(mkdirat(d->fd, "caches/qwen.conf", 0700), 0);
        expect_fault(d, -EINVAL, "/caches/qwen.conf", 0, "regular file");
        assert_int_equal(unlinkat(d->fd, "caches/qwen.conf", AT_REMOVEDIR), 0);

        put(d, "caches/qwen.conf", "[Cache]\nSource=/a\n");
        assert_int_equal(symlinkat("..", d->fd, "caches/qwen.conf.d"), 0);
        expect_fault(d, -EPERM, "/caches/qwen.conf.d", 0, "no directory");
        assert_int_equal(path_remove_tree(d->fd, "caches", 10), 0);
        assert_int_equal(symlinkat(".", d->fd, "caches"), 0);
        expect_fault(d, -EPERM, "/caches", 0, "no directory");
}

static void test_writable_by_others(void **state)
{
        const Scratch *d = *state;

        put(d, "caches/qwen.conf", "[Cache]\nSource=/a\n");
        assert_int_equal(fchmodat(d->fd, "caches/qwen.conf", 0664, 0), 0);
        expect_fault(d, -EPERM, "/caches/qwen.conf", 0, "go-w");
        assert_int_equal(fchmodat(d->fd, "caches/qwen.conf", 0646, 0), 0);
        expect_fault(d, -EPERM, "/caches/qwen.conf", 0, "go-w");
        assert_int_equal(fchmodat(d->fd, "caches/qwen.conf", 0644, 0), 0);
        assert_int_equal(fchmodat(d->fd, "caches", 0777, 0), 0);
        expect_fault(d, -EPERM, "/caches", 0, "go-w");
        assert_int_equal(fchmodat(d->fd, "caches", 0755, 0), 0);
        assert_int_equal(fchmod(d->fd, 0775), 0);
        expect_fault(d, -EPERM, "", 0, "go-w");
        assert_int_equal(fchmod(d->fd, 0755), 0);
        assert_int_equal(mkdirat(d->fd, "caches/qwen.conf.d", 0755), 0);
        assert_int_equal(fchmodat(d->fd, "caches/qwen.conf.d", 0777, 0), 0);
        expect_fault(d, -EPERM, "/caches/qwen.conf.d", 0, "go-w");
}

static void test_foreign_owner(void **state)
{
        const Scratch *d = *state;

        if (geteuid() != 0)
                skip();
        put(d, "caches/qwen.conf", "[Cache]\nSource=/a\n");
        assert_int_equal(fchownat(d->fd, "caches/qwen.conf", 65534, 65534, 0), 0);
        expect_fault(d, -EPERM, "/caches/qwen.conf", 0, "another user");
        assert_int_equal(fchownat(d->fd, "caches/qwen.conf", 0, 0, 0), 0);
        assert_int_equal(fchownat(d->fd, "caches", 65534, 65534, 0), 0);
        expect_fault(d, -EPERM, "/caches", 0, "another user");
}

static void test_manager(void **state)
{
        const Scratch *d = *state;
        _cleanup_config_fault_ ConfigFault fault = {};
        ManagerConfig c;

        manager_config_defaults(&c);
        assert_int_equal(manager_config_load(d->fd, &c, &fault), 0);
        assert_int_equal(c.caches_max, 256);
        assert_int_equal(c.descriptors_max, 4096);
        assert_int_equal(c.log_level, LOG_INFO);
        assert_int_equal(c.connection_limits.connections, varlink_limits_default.connections);

        put(d, "iloaderd.conf",
            "[Manager]\nConnectionsMax=10\nConnectionsMaxPerUser=5\nMessageSizeMax=64K\nCachesMax=3\n"
            "CachesMaxPerUser=2\nLoadsMaxPerUser=1\nBytesMaxPerUser=64GiB\nLeasesMaxPerUser=7\nFilesMax="
            "100000\n"
            "DescriptorsMax=512\nLoadStallTimeoutSec=2.5\nLogLevel=debug\n");
        assert_int_equal(manager_config_load(d->fd, &c, &fault), 0);
        assert_int_equal(c.connection_limits.connections, 10);
        assert_int_equal(c.connection_limits.connections_per_uid, 5);
        assert_int_equal(c.connection_limits.message_size, KIB(64));
        assert_int_equal(c.connection_limits.queue_size, varlink_limits_default.queue_size);
        assert_int_equal(c.caches_max, 3);
        assert_int_equal(c.caches_max_per_user, 2);
        assert_int_equal(c.loads_max_per_user, 1);
        assert_int_equal(c.bytes_max_per_user, GIB(64));
        assert_int_equal(c.leases_max_per_user, 7);
        assert_int_equal(c.files_max, 100000);
        assert_int_equal(c.descriptors_max, 512);
        assert_int_equal(c.load_stall_timeout, 2500000);
        assert_int_equal(c.log_level, LOG_DEBUG);
}

static void test_manager_faults(void **state)
{
        static const BadText bad[] = {
                {"[Manager]\nCachesMax=0\n", 2,
                 "'CachesMax=0' is not acceptable: expected a number from 1 to 65536"},
                {"[Manager]\nMessageSizeMax=1\n", 2, "expected a size from 4K to 64M"},
                {"[Manager]\nMessageSizeMax=infinity\n", 2, "expected a size"},
                {"[Manager]\nLogLevel=7\n", 2, "expected emerg"},
                {"[Manager]\nLoadStallTimeoutSec=0.5\n", 2, "at least 1"},
                {"[Manager]\nCacheMax=4\n", 2, "did you mean 'CachesMax='"},
                {"[Cache]\n", 1, "this file has only [Manager]"},
        };
        const Scratch *d = *state;

        for (size_t i = 0; i < ELEMENTSOF(bad); i++) {
                _cleanup_config_fault_ ConfigFault fault = {};
                ManagerConfig c;

                manager_config_defaults(&c);
                c.files_max = 77;
                put(d, "iloaderd.conf", bad[i].text);
                assert_int_equal(manager_config_load(d->fd, &c, &fault), -EINVAL);
                assert_int_equal(fault.line, bad[i].line);
                assert_non_null(strstr(fault.message, bad[i].words));
                assert_non_null(strstr(fault.path, "/iloaderd.conf"));
                /* Nothing of a faulty file is taken. */
                assert_int_equal(c.files_max, 77);
                assert_int_equal(c.caches_max, 256);
        }
}

/* Removes the # before what looks like a key. */
static void uncomment(char *text)
{
        for (char *p = text; (p = strstr(p, "\n#")); p++)
                if (p[2] != ' ' && p[2] != '\n')
                        p[1] = ' ';
}

/* The values that the installed file shows, commented out, are the defaults. */
static void test_installed_file(void **state)
{
        const Scratch *d = *state;
        _cleanup_config_fault_ ConfigFault fault = {};
        _cleanup_free_ char *text = NULL;
        ManagerConfig c, defaults;

        assert_int_equal(fd_read_file_at(AT_FDCWD, "etc/iloaderd.conf", MIB(1), &text, NULL), 0);
        uncomment(text);
        put(d, "iloaderd.conf", text);
        manager_config_defaults(&defaults);
        manager_config_defaults(&c);
        /* What the file doesn't name keeps this. */
        c.caches_max = c.caches_max_per_user = c.loads_max_per_user = c.bytes_max_per_user = 1;
        c.leases_max_per_user = c.files_max = c.descriptors_max = c.load_stall_timeout = 1;
        c.connection_limits.connections = c.connection_limits.connections_per_uid = 1;
        c.connection_limits.message_size = 1;
        c.log_level = LOG_EMERG;
        assert_int_equal(manager_config_load(d->fd, &c, &fault), 0);
        assert_int_equal(c.connection_limits.connections, defaults.connection_limits.connections);
        assert_int_equal(c.connection_limits.connections_per_uid,
                         defaults.connection_limits.connections_per_uid);
        assert_int_equal(c.connection_limits.message_size, defaults.connection_limits.message_size);
        assert_int_equal(c.caches_max, defaults.caches_max);
        assert_int_equal(c.caches_max_per_user, defaults.caches_max_per_user);
        assert_int_equal(c.loads_max_per_user, defaults.loads_max_per_user);
        assert_int_equal(c.bytes_max_per_user, defaults.bytes_max_per_user);
        assert_int_equal(c.leases_max_per_user, defaults.leases_max_per_user);
        assert_int_equal(c.files_max, defaults.files_max);
        assert_int_equal(c.descriptors_max, defaults.descriptors_max);
        assert_int_equal(c.load_stall_timeout, defaults.load_stall_timeout);
        assert_int_equal(c.log_level, defaults.log_level);
}

/* Every key of the sample is one, with a value that is acceptable. */
static void test_sample(void **state)
{
        const Scratch *d = *state;
        _cleanup_(cache_settings_freep) CacheSettings *s = NULL, *full = NULL;
        _cleanup_free_ char *text = NULL;

        assert_int_equal(fd_read_file_at(AT_FDCWD, "etc/caches/example.conf.sample", MIB(1), &text, NULL), 0);
        put(d, "caches/qwen.conf", text);
        s = load(d);
        assert_string_equal(s->source, "/models/Qwen3-8B");
        uncomment(text);
        put(d, "caches/qwen.conf", text);
        full = load(d);
        assert_int_equal(full->mode, 0440);
        assert_int_equal(full->idle_ttl, 3600 * USEC_PER_SEC);
        assert_int_equal(full->chunk_size, s->chunk_size);
        assert_int_equal(full->reserve_bytes, s->reserve_bytes);
        assert_string_equal(full->owner, s->owner);
}

static void test_fault_set(void **state)
{
        _cleanup_config_fault_ ConfigFault fault = {};

        assert_int_equal(config_fault_set(NULL, "/a", 1, "%s", "x"), -EINVAL);
        assert_int_equal(config_fault_set(&fault, "/a", 1, "%s", "x"), -EINVAL);
        assert_int_equal(config_fault_set(&fault, "/b", 2, "%s", "y"), -EINVAL);
        assert_string_equal(fault.path, "/b");
        assert_string_equal(fault.message, "y");
        assert_int_equal(fault.line, 2);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, scratch_teardown)

int main(void)
{
        const struct CMUnitTest tests[] = {
                TEST(test_cache_defaults),
                TEST(test_cache_all_keys),
                TEST(test_cache_resets),
                TEST(test_cache_infinity),
                TEST(test_dropins),
                TEST(test_missing),
                TEST(test_owner),
                TEST(test_bad_names),
                TEST(test_bad_syntax),
                TEST(test_unknown_keys),
                TEST(test_bad_values),
                TEST(test_strange_bytes),
                TEST(test_continuation),
                TEST(test_sizes),
                TEST(test_too_many_patterns),
                TEST(test_too_many_dropins),
                TEST(test_not_files),
                TEST(test_writable_by_others),
                TEST(test_foreign_owner),
                TEST(test_manager),
                TEST(test_manager_faults),
                TEST(test_installed_file),
                TEST(test_sample),
                cmocka_unit_test(test_fault_set),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
