/* A library that is loaded while threads run. Its variables are own to each thread. */
__thread int late_number = 40;
__thread char late_room[5000];

int late_count(void);

int late_count(void) {
    late_room[late_number] = 1;
    return ++late_number;
}
