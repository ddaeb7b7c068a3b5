/* kumihimo/channel.h: channels. See kumihimo.h and kumihimo_channels(3). */
#ifndef KUMIHIMO_CHANNEL_H
#define KUMIHIMO_CHANNEL_H

#include <kumihimo/base.h>

KUMI_BEGIN

/* A queue of items of one size, for any number of senders and receivers. */
typedef struct kumi_channel kumi_channel;

#define KUMI_CHANNEL_MAX_ITEM 65536u        /* bytes */
#define KUMI_CHANNEL_MAX_CAPACITY 16777216u /* items */

/* Creates a channel for `capacity` items of `item_size` bytes. *out is NULL unless the result is 0.
 * EINVAL. */
int kumi_channel_create(kumi_channel **out, size_t item_size, size_t capacity);

/* Copies an item into the channel, and waits for room before. EPIPE if the channel is closed;
 * ETIMEDOUT, ECANCELED, EINVAL. */
int kumi_channel_send(kumi_channel *channel, const void *item, int64_t timeout_ns);

/* Copies the oldest item out of the channel, and waits for one before. EPIPE if the channel is
 * closed and empty; ETIMEDOUT, ECANCELED, EINVAL. */
int kumi_channel_receive(kumi_channel *channel, void *item, int64_t timeout_ns);

/* Closes a channel: sends fail, also those that wait; receives fail once it is empty. EINVAL. */
int kumi_channel_close(kumi_channel *channel);

/* Return the number of items in the channel, and of threads that wait in it; 0 for NULL. */
size_t kumi_channel_length(const kumi_channel *channel);
size_t kumi_channel_waiting(const kumi_channel *channel);

/* Frees a channel and its items. EBUSY, without effect, if a thread waits in it. NULL has no
 * effect. */
int kumi_channel_destroy(kumi_channel *channel);

KUMI_END

#endif
