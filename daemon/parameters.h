/* Start's parameters as settings: every range strict, every refusal naming its field. */
#pragma once

#include "daemon/settings.h"
#include "wire/manager-interface.h"

/* -EINVAL with *ret_field (static) naming what is wrong; -ENOMEM. A source must be there. */
int settings_from_parameters(const ManagerStartParameters *p, CacheSettings **ret, const char **ret_field);
/* Whether anything is given that only goes with a source: its field, or NULL. */
const char *parameters_beyond_configured(const ManagerStartParameters *p);
