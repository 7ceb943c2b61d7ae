# Flags, paths and probes. Everything here can be overridden on the command line or in the environment.
VERSION      := $(shell cat VERSION)
PREFIX       ?= /usr
BINDIR       ?= $(PREFIX)/bin
LIBDIR       ?= $(PREFIX)/lib
PKGLIBDIR    ?= $(PREFIX)/lib/iloader
INCLUDEDIR   ?= $(PREFIX)/include
DATADIR      ?= $(PREFIX)/share
MANDIR       ?= $(DATADIR)/man
SYSCONFDIR   ?= /etc
UNITDIR      ?= $(PREFIX)/lib/systemd
SYSUSERSDIR  ?= $(PREFIX)/lib/sysusers.d
TMPFILESDIR  ?= $(PREFIX)/lib/tmpfiles.d
CATALOGDIR   ?= $(PREFIX)/lib/systemd/catalog
DESTDIR      ?=

CC           ?= gcc
PYTHON       ?= python3
PKG_CONFIG   ?= pkg-config
SCDOC        ?= scdoc

PACKAGES     := libsystemd json-c libgcrypt libseccomp inih
PKG_CFLAGS   := $(shell $(PKG_CONFIG) --cflags $(PACKAGES) 2>/dev/null)
LIBS_SYSTEMD := $(shell $(PKG_CONFIG) --libs libsystemd 2>/dev/null)
LIBS_JSON    := $(shell $(PKG_CONFIG) --libs json-c 2>/dev/null)
LIBS_GCRYPT  := $(shell $(PKG_CONFIG) --libs libgcrypt 2>/dev/null)
LIBS_SECCOMP := $(shell $(PKG_CONFIG) --libs libseccomp 2>/dev/null)
LIBS_INIH    := $(shell $(PKG_CONFIG) --libs inih 2>/dev/null)
LIBS_CMOCKA  := $(shell $(PKG_CONFIG) --libs cmocka 2>/dev/null)

WARN := -Wall -Wextra -Wshadow -Wundef -Wformat=2 -Wstrict-prototypes -Wmissing-prototypes \
	-Wmissing-declarations -Wpointer-arith -Wwrite-strings -Wvla -Wimplicit-fallthrough \
	-Wno-unused-parameter -Wno-missing-field-initializers -Werror=implicit-function-declaration
ifneq ($(WERROR)$(CI),)
WARN += -Werror
endif

# B is the build directory; SANITIZE=1 builds everything with ASan and UBSan into a directory of its own.
ifeq ($(SANITIZE),1)
B            ?= build/sanitize
OPT          := -O1 -g -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer
LDOPT        := -fsanitize=address,undefined
else
B            ?= build/release
OPT          ?= -O2 -g -D_FORTIFY_SOURCE=2 -fstack-protector-strong -fstack-clash-protection
LDOPT        := -Wl,-z,relro,-z,now -Wl,--as-needed
endif

# What is done is said in a word; V=1 shows whole commands.
ifeq ($(V),1)
Q            :=
say          :=
else
Q            := @
say          = @echo "  $(1) $(2)"
endif

ALL_CPPFLAGS := -D_GNU_SOURCE -D_FILE_OFFSET_BITS=64 -DILOADER_VERSION='"$(VERSION)"' \
	-I. -Iinclude -I$(B)/gen $(PKG_CFLAGS) $(CPPFLAGS)
ALL_CFLAGS   := -std=gnu11 $(OPT) $(WARN) -fPIC -fvisibility=hidden -pthread $(CFLAGS)
ALL_LDFLAGS  := -pthread $(LDOPT) $(LDFLAGS)
