/* daemon/identity: users and groups as numbers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <grp.h>
#include <pwd.h>
#include <string.h>

#include "base/cleanup.h"
#include "daemon/identity.h"

static void test_root(void **state)
{
        _cleanup_identity_ Identity by_name = {}, by_number = {};
        bool found = false;

        assert_int_equal(identity_from_user("root", &by_name), 0);
        assert_int_equal(by_name.uid, 0);
        assert_int_equal(by_name.gid, 0);
        /* getgrouplist(3) always has the primary group. */
        for (size_t i = 0; i < by_name.n_groups; i++)
                found = found || by_name.groups[i] == 0;
        assert_true(found);
        assert_int_equal(identity_from_user("0", &by_number), 0);
        assert_int_equal(by_number.uid, 0);
        assert_int_equal(by_number.n_groups, by_name.n_groups);
}

static void test_unknown_users(void **state)
{
        static const char *const users[] = {
                "",
                "no-such-user-here",
                "4294967295",
                "4294967296",
                "18446744073709551616",
                "-1",
                "+0",
                " 0",
                "0x0",
                "4000000007",
                "root:",
                "root ",
        };

        for (size_t i = 0; i < ELEMENTSOF(users); i++) {
                Identity identity = {.uid = 42};
                int r = identity_from_user(users[i], &identity);

                if (r != -ESRCH)
                        fail_msg("user '%s': %d", users[i], r);
                assert_int_equal(identity.uid, 42);
        }
}

static void test_groups(void **state)
{
        static const char *const unknown[] = {"",   "no-such-group-here", "4294967295", "4294967296", "-1",
                                              "0x0"};
        gid_t gid = 7;

        assert_int_equal(group_from_name("root", &gid), 0);
        assert_int_equal(gid, 0);
        /* A number needs no entry. */
        assert_int_equal(group_from_name("4000000007", &gid), 0);
        assert_int_equal(gid, 4000000007U);
        for (size_t i = 0; i < ELEMENTSOF(unknown); i++) {
                int r = group_from_name(unknown[i], &gid);

                if (r != -ESRCH)
                        fail_msg("group '%s': %d", unknown[i], r);
                assert_int_equal(gid, 4000000007U);
        }
}

static void test_self(void **state)
{
        _cleanup_identity_ Identity self = {};

        assert_int_equal(identity_self(&self), 0);
        assert_int_equal(self.uid, geteuid());
        assert_int_equal(self.gid, getegid());
        assert_int_equal(self.n_groups, getgroups(0, NULL));
}

static void test_peer(void **state)
{
        gid_t groups[] = {5, 4000000000U, 0};
        const VarlinkPeer peer = {.pid = 1, .uid = 1000, .gid = 100, .groups = groups, .n_groups = 3};
        const VarlinkPeer alone = {.uid = 1000, .gid = 100};
        _cleanup_identity_ Identity identity = {}, copy = {}, none = {};
        SpawnCredentials credentials;

        assert_int_equal(identity_from_peer(&peer, &identity), 0);
        assert_int_equal(identity.uid, 1000);
        assert_int_equal(identity.gid, 100);
        assert_int_equal(identity.n_groups, 3);
        assert_ptr_not_equal(identity.groups, groups);
        assert_memory_equal(identity.groups, groups, sizeof(groups));

        assert_int_equal(identity_copy(&identity, &copy), 0);
        assert_ptr_not_equal(copy.groups, identity.groups);
        assert_memory_equal(copy.groups, groups, sizeof(groups));
        credentials = identity_credentials(&copy);
        assert_int_equal(credentials.uid, 1000);
        assert_int_equal(credentials.gid, 100);
        assert_ptr_equal(credentials.groups, copy.groups);
        assert_int_equal(credentials.n_groups, 3);

        assert_int_equal(identity_from_peer(&alone, &none), 0);
        assert_int_equal(none.n_groups, 0);

        assert_true(peer_in_group(&peer, 100));
        assert_true(peer_in_group(&peer, 5));
        assert_true(peer_in_group(&peer, 4000000000U));
        assert_true(peer_in_group(&peer, 0));
        assert_false(peer_in_group(&peer, 6));
        assert_false(peer_in_group(&alone, 0));
        /* "No group" is nobody's. */
        assert_false(peer_in_group(&(VarlinkPeer){.gid = (gid_t) -1}, (gid_t) -1));
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_root),   cmocka_unit_test(test_unknown_users),
                cmocka_unit_test(test_groups), cmocka_unit_test(test_self),
                cmocka_unit_test(test_peer),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
