/* A call of the library that has to succeed. Calls that take an mt_error are given `&error`: the one that is made here,
 * so that the message is of this call. */
#ifndef OK_H
#define OK_H

#define OK(call)                                                                                                       \
    do {                                                                                                               \
        mt_error error = {0};                                                                                          \
        const mt_status status_ = (call);                                                                              \
        if (status_ != MT_OK) fail_msg("%s: %s: %s: %s", #call, mt_status_name(status_), error.where, error.message);  \
    } while (0)

#endif
