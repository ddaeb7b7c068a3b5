/* Channels: channels CASE. */
#include "check.h"

struct job {
  uint64_t number;
  char padding[5];
};

static void *produce(void *arg) {
  struct job job = {1, "four"};
  for (; job.number <= 1000; job.number++) RETURNS(0, kumi_channel_send(arg, &job, LONG));
  return NULL;
}

static void *consume(void *arg) {
  struct job job;
  uintptr_t sum = 0;
  int failed;
  while ((failed = kumi_channel_receive(arg, &job, LONG)) == 0) {
    CHECK(strcmp(job.padding, "four") == 0);
    sum += job.number;
  }
  CHECK(failed == EPIPE);
  return (void *)sum;
}

static void work(void) {
  kumi_channel *jobs;
  kumi_thread producers[5], consumers[5];
  uintptr_t sum = 0;
  int i;
  RETURNS(0, kumi_channel_create(&jobs, sizeof(struct job), 3));
  for (i = 0; i < 5; i++) {
    producers[i] = start(produce, jobs);
    consumers[i] = start(consume, jobs);
  }
  for (i = 0; i < 5; i++) join(producers[i]);
  RETURNS(0, kumi_channel_close(jobs));
  for (i = 0; i < 5; i++) sum += (uintptr_t)join(consumers[i]);
  CHECK(sum == 5 * 500500);
  RETURNS(0, kumi_channel_destroy(jobs));
}

static void *send_one(void *arg) {
  int item = 1;
  return (void *)(intptr_t)kumi_channel_send(arg, &item, LONG);
}

static void *receive_one(void *arg) {
  int item;
  return (void *)(intptr_t)kumi_channel_receive(arg, &item, LONG);
}

static void misuse(void) {
  kumi_channel *channel = (kumi_channel *)&channel;
  kumi_thread thread;
  int item = 5;
  RETURNS(EINVAL, kumi_channel_create(NULL, 4, 4));
  RETURNS(EINVAL, kumi_channel_create(&channel, 0, 4));
  CHECK(channel == NULL);
  RETURNS(EINVAL, kumi_channel_create(&channel, 4, 0));
  RETURNS(EINVAL, kumi_channel_create(&channel, KUMI_CHANNEL_MAX_ITEM + 1, 4));
  RETURNS(EINVAL, kumi_channel_create(&channel, 4, KUMI_CHANNEL_MAX_CAPACITY + 1));
  RETURNS(EINVAL, kumi_channel_send(NULL, &item, 0));
  RETURNS(EINVAL, kumi_channel_receive(NULL, &item, 0));
  RETURNS(EINVAL, kumi_channel_close(NULL));
  CHECK(kumi_channel_length(NULL) == 0 && kumi_channel_waiting(NULL) == 0);
  RETURNS(0, kumi_channel_destroy(NULL));
  RETURNS(0, kumi_channel_create(&channel, sizeof item, 1));
  RETURNS(EINVAL, kumi_channel_send(channel, NULL, 0));
  RETURNS(EINVAL, kumi_channel_receive(channel, NULL, 0));
  RETURNS(EINVAL, kumi_channel_send(channel, &item, -2));
  RETURNS(ETIMEDOUT, kumi_channel_receive(channel, &item, 0));
  RETURNS(ETIMEDOUT, kumi_channel_receive(channel, &item, MS));

  /* Destroyed and closed while threads wait. */
  thread = start(receive_one, channel);
  while (kumi_channel_waiting(channel) == 0) kumi_sleep(MS / 10);
  RETURNS(EBUSY, kumi_channel_destroy(channel));
  RETURNS(0, kumi_channel_send(channel, &item, 0));
  CHECK((intptr_t)join(thread) == 0);
  RETURNS(0, kumi_channel_send(channel, &item, 0));
  CHECK(kumi_channel_length(channel) == 1);
  RETURNS(ETIMEDOUT, kumi_channel_send(channel, &item, 0));
  thread = start(send_one, channel);
  RETURNS(0, kumi_sleep(MS));
  RETURNS(0, kumi_channel_close(channel));
  CHECK((intptr_t)join(thread) == EPIPE);
  RETURNS(0, kumi_channel_close(channel));
  RETURNS(EPIPE, kumi_channel_send(channel, &item, LONG));
  RETURNS(0, kumi_channel_receive(channel, &item, LONG));
  RETURNS(EPIPE, kumi_channel_receive(channel, &item, LONG));
  RETURNS(0, kumi_channel_destroy(channel));

  RETURNS(0, kumi_channel_create(&channel, sizeof item, 1));
  thread = start(receive_one, channel);
  RETURNS(0, kumi_sleep(MS));
  RETURNS(0, kumi_thread_cancel(thread));
  CHECK((intptr_t)join(thread) == ECANCELED);
  RETURNS(0, kumi_channel_destroy(channel));
}

int main(int count, char **arguments) {
  static const struct named_case cases[] = {{"work", work}, {"misuse", misuse}, {NULL, NULL}};
  return run_cases(count, arguments, cases);
}
