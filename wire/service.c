/* org.varlink.service, which every varlink service serves (varlink.org, "Service"). */
#include <errno.h>
#include <stdlib.h>

#include "base/text.h"
#include "wire/server-internal.h"

static const char description[] =
        "# The Varlink Service Interface is provided by every varlink service. It\n"
        "# describes the service and the interfaces it implements.\n"
        "interface org.varlink.service\n"
        "\n"
        "# Get a list of all the interfaces a service provides and information\n"
        "# about the implementation.\n"
        "method GetInfo() -> (\n"
        "  vendor: string,\n"
        "  product: string,\n"
        "  version: string,\n"
        "  url: string,\n"
        "  interfaces: []string\n"
        ")\n"
        "\n"
        "# Get the description of an interface that is implemented by this service.\n"
        "method GetInterfaceDescription(interface: string) -> (description: string)\n"
        "\n"
        "# The requested interface was not found.\n"
        "error InterfaceNotFound (interface: string)\n"
        "\n"
        "# The requested method was not found\n"
        "error MethodNotFound (method: string)\n"
        "\n"
        "# The interface defines the requested method, but the service does not\n"
        "# implement it.\n"
        "error MethodNotImplemented (method: string)\n"
        "\n"
        "# One of the passed parameters is invalid.\n"
        "error InvalidParameter (parameter: string)\n"
        "\n"
        "# Client is denied access\n"
        "error PermissionDenied ()\n"
        "\n"
        "# Method is expected to be called with 'more' set to true, but wasn't\n"
        "error ExpectedMore ()\n";

static int add_interfaces(const VarlinkServer *s, struct json_object *parameters)
{
        _cleanup_free_ char **names = NULL;

        names = calloc(s->n_interfaces + 1, sizeof(char *));
        if (!names)
                return -ENOMEM;
        for (size_t i = 0; i < s->n_interfaces; i++)
                names[i] = (char *) s->interfaces[i].interface->name;
        return json_add_strv(parameters, "interfaces", names);
}

static int method_get_info(VarlinkCall *call, _unused_ void *parameters, void *userdata)
{
        _cleanup_json_ struct json_object *reply = NULL;
        const VarlinkServer *s = userdata;
        int r;

        reply = json_object_new_object();
        if (!reply)
                return -ENOMEM;
        r = json_add_string(reply, "vendor", s->vendor);
        if (r >= 0)
                r = json_add_string(reply, "product", s->product);
        if (r >= 0)
                r = json_add_string(reply, "version", s->version);
        if (r >= 0)
                r = json_add_string(reply, "url", s->url);
        if (r >= 0)
                r = add_interfaces(s, reply);
        if (r < 0)
                return r;
        return varlink_call_reply(call, TAKE_PTR(reply));
}

typedef struct DescriptionParameters {
        char *interface;
} DescriptionParameters;

static const DispatchField description_fields[] = {
        {"interface", dispatch_string, offsetof(DescriptionParameters, interface), json_type_string,
         DISPATCH_MANDATORY},
        {NULL},
};

static void description_parameters_done(void *p)
{
        free(((DescriptionParameters *) p)->interface);
}

static int method_get_interface_description(VarlinkCall *call, void *parameters, void *userdata)
{
        _cleanup_json_ struct json_object *reply = NULL;
        const DescriptionParameters *p = parameters;
        const VarlinkServer *s = userdata;
        const char *text = NULL;
        int r;

        for (size_t i = 0; !text && i < s->n_interfaces; i++)
                if (streq(s->interfaces[i].interface->name, p->interface))
                        text = s->interfaces[i].interface->description;
        reply = json_object_new_object();
        if (!reply)
                return -ENOMEM;
        r = text ? json_add_string(reply, "description", text)
                 : json_add_string(reply, "interface", p->interface);
        if (r < 0)
                return r;
        if (!text)
                return varlink_call_error(call, ERROR_INTERFACE_NOT_FOUND, TAKE_PTR(reply));
        return varlink_call_reply(call, TAKE_PTR(reply));
}

static const DispatchField no_fields[] = {{NULL}};

static const VarlinkMethod methods[] = {
        {.name = "GetInfo", .fields = no_fields, .handler = method_get_info},
        {.name = "GetInterfaceDescription",
         .fields = description_fields,
         .parameters_size = sizeof(DescriptionParameters),
         .parameters_done = description_parameters_done,
         .handler = method_get_interface_description},
        {NULL},
};

const VarlinkInterface service_interface = {
        .name = SERVICE_INTERFACE,
        .description = description,
        .methods = methods,
};
