# iloader's build. `make help` lists what there is.
all:

include config.mk

objs = $(patsubst %.c,$(B)/%.o,$(wildcard $(1)/*.c))

BASE_OBJ       := $(call objs,base)
WIRE_OBJ       := $(call objs,wire) $(B)/gen/wire/manager-interface.o
CHECKPOINT_OBJ := $(call objs,checkpoint)
LIB_OBJ        := $(call objs,lib)
DAEMON_OBJ     := $(call objs,daemon)
WORKER_OBJ     := $(call objs,daemon/worker)
CTL_OBJ        := $(call objs,ctl)
# The programs' modules without their main(), so that unit tests can link them.
DAEMON_LIB     := $(filter-out $(B)/daemon/main.o,$(DAEMON_OBJ))
WORKER_LIB     := $(filter-out $(B)/daemon/worker/main.o,$(WORKER_OBJ))
CTL_LIB        := $(filter-out $(B)/ctl/main.o,$(CTL_OBJ))

ARCHIVES := $(addprefix $(B)/,libbase.a libwire.a libcheckpoint.a)
LIBS     := $(LIBS_SYSTEMD) $(LIBS_JSON) $(LIBS_GCRYPT) $(LIBS_SECCOMP) $(LIBS_INIH)
SOVERSION := 0
PROGRAMS := $(addprefix $(B)/,iloader iloaderctl iloaderd iloader-worker libiloader.so)

all: $(PROGRAMS)

INTERFACE := wire/io.iloader.Manager.varlink
$(B)/gen/wire/manager-interface.c $(B)/gen/wire/manager-interface.h &: $(INTERFACE) tools/gen-interface.py
	@mkdir -p $(@D)
	$(call say,GEN,$@)
	$(Q)$(PYTHON) tools/gen-interface.py --header $(B)/gen/wire/manager-interface.h \
		--source $(B)/gen/wire/manager-interface.c $(INTERFACE)

$(B)/%.o: %.c | $(B)/gen/wire/manager-interface.h
	@mkdir -p $(@D)
	$(call say,CC,$<)
	$(Q)$(CC) $(ALL_CPPFLAGS) $(ALL_CFLAGS) -MMD -MP -c -o $@ $<
$(B)/gen/%.o: $(B)/gen/%.c
	$(call say,CC,$<)
	$(Q)$(CC) $(ALL_CPPFLAGS) $(ALL_CFLAGS) -MMD -MP -c -o $@ $<

define archive
	@rm -f $@
	$(call say,AR,$@)
	$(Q)$(AR) rcs $@ $^
endef
$(B)/libbase.a: $(BASE_OBJ) ; $(archive)
$(B)/libwire.a: $(WIRE_OBJ) ; $(archive)
$(B)/libcheckpoint.a: $(CHECKPOINT_OBJ) ; $(archive)

define link
	$(call say,LD,$@)
	$(Q)$(CC) $(ALL_CFLAGS) $(ALL_LDFLAGS) -o $@ $(filter %.o,$^) -Wl,--start-group $(filter %.a,$^) -Wl,--end-group
endef
$(B)/iloaderd: $(DAEMON_OBJ) $(ARCHIVES)
	$(link) $(LIBS_SYSTEMD) $(LIBS_JSON) $(LIBS_GCRYPT) $(LIBS_INIH) $(LIBS_SECCOMP) -lm
$(B)/iloader-worker: $(WORKER_OBJ) $(ARCHIVES)
	$(link) $(LIBS_JSON) $(LIBS_GCRYPT) $(LIBS_SECCOMP) $(LIBS_SYSTEMD)
$(B)/iloader: $(CTL_OBJ) $(LIB_OBJ) $(ARCHIVES)
	$(link) $(LIBS_SYSTEMD) $(LIBS_JSON) $(LIBS_GCRYPT) $(LIBS_SECCOMP)
$(B)/iloaderctl: | $(B)/iloader
	ln -sf iloader $@
$(B)/libiloader.so: $(LIB_OBJ) $(B)/libwire.a $(B)/libbase.a lib/libiloader.sym
	$(call say,LD,$@)
	$(Q)$(CC) $(ALL_CFLAGS) $(ALL_LDFLAGS) -shared -Wl,-soname,libiloader.so.$(SOVERSION) -Wl,--no-undefined \
		-Wl,--version-script=lib/libiloader.sym -o $@ $(filter %.o,$^) \
		-Wl,--start-group $(filter %.a,$^) -Wl,--end-group $(LIBS_SYSTEMD) $(LIBS_JSON) $(LIBS_GCRYPT) $(LIBS_SECCOMP)
	ln -sf libiloader.so $(B)/libiloader.so.$(SOVERSION)

# Unit tests: tests/unit/test-NAME.c. All modules are at hand but the mains; the linker takes what is used.
UNIT_TESTS := $(patsubst tests/unit/%.c,$(B)/tests/%,$(wildcard tests/unit/test-*.c))
$(B)/libdaemon.a: $(DAEMON_LIB) ; $(archive)
$(B)/libworker.a: $(WORKER_LIB) ; $(archive)
$(B)/libctl.a: $(CTL_LIB) ; $(archive)
$(B)/liblib.a: $(LIB_OBJ) ; $(archive)
$(B)/tests/test-%: $(B)/tests/unit/test-%.o $(ARCHIVES) $(B)/libdaemon.a $(B)/libworker.a $(B)/libctl.a $(B)/liblib.a
	@mkdir -p $(@D)
	$(link) $(LIBS) $(LIBS_CMOCKA) -lm
# It runs the program itself.
$(B)/tests/test-worker: | $(B)/iloader-worker
unit-tests: $(UNIT_TESTS)

include tests/tests.mk

install: all man
	install -d $(addprefix $(DESTDIR),$(BINDIR) $(PKGLIBDIR) $(LIBDIR)/pkgconfig $(INCLUDEDIR)/iloader \
		$(UNITDIR)/system $(UNITDIR)/user $(SYSUSERSDIR) $(TMPFILESDIR) $(CATALOGDIR) \
		$(DATADIR)/bash-completion/completions $(DATADIR)/varlink $(DATADIR)/doc/iloader/examples \
		$(SYSCONFDIR)/iloader/caches)
	install -m 0755 $(B)/iloader $(DESTDIR)$(BINDIR)/iloader
	ln -sf iloader $(DESTDIR)$(BINDIR)/iloaderctl
	install -m 0755 $(B)/iloaderd $(B)/iloader-worker $(DESTDIR)$(PKGLIBDIR)/
	install -m 0755 $(B)/libiloader.so $(DESTDIR)$(LIBDIR)/libiloader.so.$(SOVERSION)
	ln -sf libiloader.so.$(SOVERSION) $(DESTDIR)$(LIBDIR)/libiloader.so
	install -m 0644 include/iloader/*.h $(DESTDIR)$(INCLUDEDIR)/iloader/
	sed -e 's|@PREFIX@|$(PREFIX)|g;s|@LIBDIR@|$(LIBDIR)|g;s|@INCLUDEDIR@|$(INCLUDEDIR)|g;s|@VERSION@|$(VERSION)|g' \
		lib/libiloader.pc.in >$(DESTDIR)$(LIBDIR)/pkgconfig/libiloader.pc
	install -m 0644 $(INTERFACE) $(DESTDIR)$(DATADIR)/varlink/
	for f in units/system/*; do sed -e 's|@BINDIR@|$(BINDIR)|g;s|@PKGLIBDIR@|$(PKGLIBDIR)|g' $$f \
		>$(DESTDIR)$(UNITDIR)/system/$${f##*/} || exit 1; done
	for f in units/user/*; do sed -e 's|@BINDIR@|$(BINDIR)|g;s|@PKGLIBDIR@|$(PKGLIBDIR)|g' $$f \
		>$(DESTDIR)$(UNITDIR)/user/$${f##*/} || exit 1; done
	for f in units/examples/*; do sed -e 's|@BINDIR@|$(BINDIR)|g' $$f \
		>$(DESTDIR)$(DATADIR)/doc/iloader/examples/$${f##*/} || exit 1; done
	install -m 0644 units/iloader.sysusers $(DESTDIR)$(SYSUSERSDIR)/iloader.conf
	install -m 0644 units/iloader.tmpfiles $(DESTDIR)$(TMPFILESDIR)/iloader.conf
	install -m 0644 units/iloader.catalog $(DESTDIR)$(CATALOGDIR)/iloader.catalog
	[ -e $(DESTDIR)$(SYSCONFDIR)/iloader/iloaderd.conf ] || \
		install -m 0644 etc/iloaderd.conf $(DESTDIR)$(SYSCONFDIR)/iloader/iloaderd.conf
	install -m 0644 etc/caches/example.conf.sample $(DESTDIR)$(SYSCONFDIR)/iloader/caches/
	$(B)/iloader completion bash >$(DESTDIR)$(DATADIR)/bash-completion/completions/iloader
	ln -sf iloader $(DESTDIR)$(DATADIR)/bash-completion/completions/iloaderctl
	for f in $(MAN_PAGES); do s=$${f##*.}; install -D -m 0644 $$f $(DESTDIR)$(MANDIR)/man$$s/$${f##*/} || exit 1; done

# Manual pages: man/NAME.SECTION.scd, and the interface's page, which is made from its description.
MAN_PAGES := $(patsubst man/%.scd,$(B)/man/%,$(wildcard man/*.scd)) $(B)/man/io.iloader.Manager.7
man: $(MAN_PAGES)
$(B)/man/%: man/%.scd
	@mkdir -p $(@D)
	$(call say,MAN,$@)
	$(Q)$(SCDOC) <$< >$@
$(B)/man/io.iloader.Manager.7: $(INTERFACE) tools/gen-interface.py
	@mkdir -p $(@D)
	$(call say,MAN,$@)
	$(Q)$(PYTHON) tools/gen-interface.py --manual $(B)/gen/io.iloader.Manager.7.scd $(INTERFACE)
	$(Q)$(SCDOC) <$(B)/gen/io.iloader.Manager.7.scd >$@

clean:
	rm -rf build

help:
	@echo "make [all]            build into $(B) (SANITIZE=1: with ASan and UBSan into build/sanitize; V=1: show commands)"
	@echo "make quickstart       install what the build needs, build, and show the product on a sample (MODEL=DIR: on yours)"
	@echo "make check            every test; ends with 'N passed, N failed, N skipped'"
	@echo "make bench fuzz       figures; longer fuzzing (FUZZ_SECONDS=)"
	@echo "make install          DESTDIR= PREFIX="

-include $(shell find $(B) -name '*.d' 2>/dev/null)
.PHONY: all unit-tests install man clean help check bench fuzz quickstart deps
.SECONDARY:
.DELETE_ON_ERROR:
