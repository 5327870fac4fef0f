from django.db import transaction
from django.http import HttpResponse, HttpResponseServerError

from shop.jobs import ship
from shop.models import Order


def place_order(request):
    try:
        with transaction.atomic():
            order = Order.objects.create(item=request.POST["item"])
            run = ship.dispatch(order_id=order.pk)
            if "fail" in request.POST:
                raise ValueError("the payment failed")
    except ValueError as error:
        return HttpResponseServerError(str(error))
    return HttpResponse(run.id)


async def place_order_async(request):
    order = await Order.objects.acreate(item=request.POST["item"])
    run = await ship.aio.dispatch(order_id=order.pk)
    return HttpResponse(run.id)
