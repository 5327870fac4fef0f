from django.db import models


class Order(models.Model):
    item = models.CharField(max_length=50, unique=True)
    state = models.CharField(max_length=20, default="new")

    def __str__(self):
        return self.item
