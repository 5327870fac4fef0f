from django_tasks import task

from shop.models import Order
from tickwork.integrations.django.tasks import job_options


class NoStock(Exception):
    pass


@task(queue_name="mail")
def add(one, other=1):
    return {"sum": one + other}


@task
async def add_async(one, other):
    return one + other


@task
def fail(text):
    raise NoStock(text)


@task(takes_context=True)
def describe(context, word):
    return [context.task_result.id, context.attempt, word]


@task
def order(item):
    return Order.objects.create(item=item).pk


@task
def unserializable():
    return object()


@task(takes_context=True)
@job_options(attempts=3, delays=["0s"], concurrency=2)
def succeed_late(context):
    if context.attempt < 3:
        raise NoStock("not yet")
    return context.attempt
